"""`python -m tests.bench facts`: what a row of the ledger costs, in batches and one by one.

The product's own way into the ledger, on a real PostgreSQL: facts of a meter that publishes event
by event, so that each is a row of `ledger.meter_log` with all that hangs on it. Once in batches as
large as a worker sends them, once with a transaction for each event. CPU is that of the client and
of all the server's processes. A plain insert for each event, into a table that nothing hangs on, is
told beside it. Exit code 1 if the ledger does not hold exactly what it was told.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import uvloop

from streams.adapters.clock import SystemClock
from streams.adapters.ledger import Ledger, open_ledger
from streams.agents.facts import UNSENT_LIMIT
from streams.core.catalogue import MeterVersion
from streams.core.fact import Applied, EventFact, FactBatch, Series
from streams.core.instant import HOUR_US, MINUTE_US
from tests.bench.output import say
from tests.bench.process_tree import postmaster, usage
from tests.bench.summary import FOLDER, Goal, put_sizes, spread, tell
from tests.support.postgres import Database, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GOAL_RATIO: Final = 20.0
LOG_ID: Final = "00000000-0000-4000-8000-000000000001"
TENANTS: Final = 1_000
JOBS: Final = MeterVersion(
    metric="jobs", version=1, event_name="jobs", window_us=MINUTE_US, publish="event", scale=0,
    skew_max_us=24 * HOUR_US, close_delay_us=0, carry="review", aggregation="sum", rules=1,
    effective_from_us=0,
)  # fmt: skip
CUSTOMERS: Final = b"""
INSERT INTO ledger.customer (tenant_id, effective_from, customer, actor)
SELECT 't' || n, ledger.at(0), 'cus_' || n, 'bench' FROM generate_series(0, %s - 1) AS n
"""
PLAIN: Final = b"""
CREATE TABLE plain (event_id uuid PRIMARY KEY, tenant_id text NOT NULL, metric text NOT NULL,
    window_start timestamptz NOT NULL, delta bigint NOT NULL);
CREATE INDEX ON plain (tenant_id, metric, window_start);
"""
INSERT: Final = b"INSERT INTO plain VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"


@dataclass(frozen=True, slots=True)
class Round:
    """CPU microseconds a row: client and server together, and the client's share of them."""

    batched_us: float
    single_us: float
    plain_us: float
    wrong: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """How many times less a row in a batch costs than one with its own transaction."""
        return self.single_us / self.batched_us

    def line(self) -> str:
        """For a person."""
        return (
            f"facts  CPU us a row: in batches {self.batched_us:5.1f}  one by one "
            f"{self.single_us:6.1f} ({self.ratio:.1f}x)  plain inserts {self.plain_us:6.1f} "
            f"({self.plain_us / self.batched_us:.1f}x)  {'; '.join(self.wrong) or 'exact'}"
        )


class Meter:
    """CPU of this process and of a database server since it was made."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._began_s = self._now_s()

    def us_each(self, rows: int) -> float:
        """Microseconds for each of so many rows."""
        return (self._now_s() - self._began_s) * 1e6 / rows

    def _now_s(self) -> float:
        return time.process_time() + usage(self._server).cpu_s


def events(first: int, count: int, begin_us: int) -> tuple[EventFact, ...]:
    """Accepted events from an offset on; ids are random, amounts are not."""
    return tuple(
        EventFact(
            event_id=hashlib.sha256(b"%d" % offset).digest()[:16],
            content=offset,
            series=Series(
                f"t{offset * 7919 % TENANTS}", "jobs", 1, begin_us, begin_us + MINUTE_US, 0
            ),
            occurred_at_us=begin_us + offset % MINUTE_US,
            units=offset % 97 + 1,
            offset=offset,
        )
        for offset in range(first, first + count)
    )


def batches(facts: Sequence[EventFact], size: int) -> Iterator[FactBatch]:
    """The facts as a worker tells them, so many at a time."""
    for at in range(0, len(facts), size):
        part = tuple(facts[at : at + size])
        yield FactBatch(
            log_topic="usage.events",
            log_id=LOG_ID,
            partition=0,
            begun_with=1,
            acknowledged=part[0].offset - 1,
            position=part[-1].offset,
            catalogue_hash="bench",
            events=part,
        )


async def _apply(ledger: Ledger, told: Sequence[FactBatch]) -> None:
    for batch in told:
        answer = await ledger.apply_facts(batch)
        assert answer == Applied(batch.position, 0), answer


async def measure(database: Database, rows: int, singles: int, size: int) -> Round:
    """One round in a ledger of its own."""
    begin_us = (SystemClock().now_us() // MINUTE_US - 10) * MINUTE_US
    with database.connect() as admin:
        server = postmaster(admin.info.backend_pid)
    first = events(0, rows, begin_us)
    second = events(rows, singles, begin_us)
    again = list(batches(first, size))
    ones = list(batches(second, 1))
    async with open_ledger(database.dsn(database.login("ledger_service"))) as ledger:
        await ledger.catalogue.append_meters([JOBS], "bench")
        with database.connect() as admin:
            admin.execute(CUSTOMERS, (TENANTS,))
            admin.execute(PLAIN)
        meter = Meter(server)
        await _apply(ledger, again)
        batched_us = meter.us_each(rows)
        meter = Meter(server)
        await _apply(ledger, ones)
        single_us = meter.us_each(singles)
        before = _held(database)
        for batch in again:
            await ledger.apply_facts(batch)
    plain_us = _plain(database, second, server)
    wrong = _differences(before, first + second)
    if _held(database) != before:
        wrong = (*wrong, "telling the same again changed the ledger")
    return Round(batched_us, single_us, plain_us, wrong)


def _plain(database: Database, facts: Sequence[EventFact], server: int) -> float:
    with database.connect() as conn:
        meter = Meter(server)
        for fact in facts:
            series = fact.series
            conn.execute(
                INSERT,
                (fact.event_id.hex(), series.tenant_id, "jobs", "2026-11-01", fact.units),
            )
        return meter.us_each(len(facts))


Held = dict[str, tuple[int, int]]


def _held(database: Database) -> Held:
    """Tenant → entries and units in the ledger."""
    with database.connect() as admin:
        found = admin.execute(
            "SELECT tenant_id, count(*), sum(delta) FROM ledger.meter_log GROUP BY tenant_id"
        ).fetchall()
    return {tenant: (int(count), int(units)) for tenant, count, units in found}


def _differences(held: Held, facts: Sequence[EventFact]) -> tuple[str, ...]:
    expected: Held = {}
    for fact in facts:
        count, units = expected.get(fact.series.tenant_id, (0, 0))
        expected[fact.series.tenant_id] = (count + 1, units + fact.units)
    wrong = [
        tenant
        for tenant in held.keys() | expected.keys()
        if held.get(tenant) != expected.get(tenant)
    ]
    return (f"{len(wrong)} tenants differ, such as {wrong[0]}",) if wrong else ()


def goals(rounds: Sequence[Round]) -> dict[str, Goal]:
    """The goal by the median; a round that was not exact fails it."""
    ratios = [r.ratio for r in rounds if not r.wrong]
    exact = len(ratios) == len(rounds)
    met = exact and median(ratios) >= GOAL_RATIO
    plain = median(r.plain_us / r.batched_us for r in rounds)
    told = (
        f"{spread(ratios, 'x')} ({median(r.batched_us for r in rounds):.0f} us a row; an insert "
        f"each into a table that nothing hangs on takes {plain:.1f}x)"
    )
    return {
        "P6": Goal(
            f"facts into the ledger: >= {GOAL_RATIO:.0f}x less CPU per row than one transaction "
            "per event",
            told,
            met=met,
            why="" if met else _why(rounds),
        )
    }


def _why(rounds: Sequence[Round]) -> str:
    wrong = [line for r in rounds for line in r.wrong]
    batched, single = (
        median(r.batched_us for r in rounds),
        median(r.single_us for r in rounds),
    )
    return "; ".join(wrong) or (
        f"a transaction of its own costs {single - batched:.0f} us, the row itself {batched:.0f} us"
    )


def main(arguments: Sequence[str]) -> int:
    """All rounds."""
    asked = _arguments(arguments)
    rounds: list[Round] = []
    with running_server({}) as server:
        for _ in range(asked.runs):
            database = server.create("ledger")
            rounds.append(uvloop.run(measure(database, asked.rows, asked.singles, asked.size)))
            server.drop(database)
            say(rounds[-1].line())
    reached = goals(rounds)
    put_sizes({"fact_us": median(r.batched_us for r in rounds)}, asked.out)
    tell(reached, asked.out)
    return int(any(r.wrong for r in rounds))


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench facts", description=__doc__)
    add = parser.add_argument
    add("--rows", type=int, default=50_000, help="rows in batches")
    add("--size", type=int, default=UNSENT_LIMIT, help="rows of a batch")
    add("--singles", type=int, default=3_000, help="rows with a transaction of their own")
    add("--runs", type=int, default=3, help="rounds")
    add("--out", type=Path, default=FOLDER, help="where the summary goes")
    return parser.parse_args(arguments)
