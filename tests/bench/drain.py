"""`python -m tests.bench drain`: how fast a backlog of parked meter events reaches the stand-in.

A ledger of its own is filled with meter events that were tried once while Stripe was away, one a
(customer, meter); then the product's publisher drains them to a stand-in in a process of its own.
Without a limiter, and with one at `--limit` requests a second; each `--runs` times. Goals, by the
median: 10,000 in less than 10 s, and 90 % of the permitted rate with less than a thousandth of all
answers 429. Exit code 1 if an amount is not exact: a goal that is missed is reported, and is no
error.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import uvloop

from sandbox.stripe_sandbox.client import StandIn
from streams.adapters.clock import SystemClock
from streams.adapters.ledger import Ledger, open_ledger
from streams.adapters.stripe import StripeSettings, StripeSink
from streams.agents.publish import Lent, Publisher
from streams.agents.publish_limits import PublishLimits
from streams.core.catalogue import MeterVersion
from streams.core.instant import HOUR_US, MINUTE_US
from tests.bench.output import say
from tests.bench.process_tree import postmaster, usage
from tests.bench.summary import FOLDER, Goal, put_sizes, spread, tell
from tests.support.postgres import Database, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GOAL_S: Final = 10.0
GOAL_EVENTS: Final = 10_000
GOAL_SHARE: Final = 0.9
GOAL_LIMITED: Final = 0.001
"""Of all answers, those that the limiter gave."""
UNLIMITED: Final = 1_000_000
ROOT: Final = Path(__file__).parents[2]
JOBS: Final = MeterVersion(
    metric="jobs", version=1, event_name="jobs", window_us=MINUTE_US, publish="event", scale=0,
    skew_max_us=24 * HOUR_US, close_delay_us=0, carry="review", aggregation="sum", rules=1,
    effective_from_us=0,
)  # fmt: skip
FILL: Final = """
INSERT INTO ledger.customer (tenant_id, effective_from, customer, actor)
SELECT 't' || n, ledger.at(0), 'cus_' || n, 'bench' FROM generate_series(1, {events}) AS n;
INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start, window_end,
    shard, delta, event_id, content, occurred_at, actor)
SELECT 'event', 't' || n, 'jobs', 1, w.start, w.start + interval '1 minute', 0, n % 97 + 1,
       md5(n::text)::uuid, n, w.start + interval '3 seconds', 'bench'
FROM generate_series(1, {events}) AS n,
     (SELECT date_trunc('minute', now()) - interval '10 minutes' AS start) AS w;
"""
PARK: Final = """
UPDATE ledger.meter_event SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL;
UPDATE ledger.lane SET next_due_at = now();
ANALYZE ledger.lane, ledger.meter_event, ledger.attempt, ledger.meter_event_entry, ledger.uncovered;
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a drain took: wall seconds, and CPU seconds by whose they are."""

    seconds: float
    publisher_s: float
    stand_in_s: float
    ledger_s: float
    """Of all processes of its database server."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What one run came to."""

    events: int
    spent: Spent
    limit: int | None
    wrong: tuple[str, ...]
    limited: float = 0.0
    """Share of the answers that were 429."""

    @property
    def for_goal_s(self) -> float:
        """Seconds for as many as the goal speaks of."""
        return self.spent.seconds * GOAL_EVENTS / self.events

    @property
    def share(self) -> float:
        """Of the permitted rate. What the publisher had saved up at the start does not count."""
        limit = self.limit or UNLIMITED
        return (self.events - limit // 4) / self.spent.seconds / limit

    def line(self) -> str:
        """For a person."""
        what = "no limiter" if self.limit is None else f"limiter {self.limit}/s"
        spent, per_event = self.spent, 1_000_000 / self.events
        of_all = spent.publisher_s + spent.stand_in_s + spent.ledger_s
        return (
            f"drain  {self.events:>7,} meter events  {what:<14} {spent.seconds:6.2f} s "
            f"{self.events / spent.seconds:8,.0f} /s  CPU us each: publisher "
            f"{spent.publisher_s * per_event:4.0f}  ledger {spent.ledger_s * per_event:4.0f}  "
            f"stand-in {spent.stand_in_s * per_event:4.0f} "
            f"({100 * spent.stand_in_s / of_all:.0f} % of all)  429 {100 * self.limited:.2f} %  "
            f"{'; '.join(self.wrong) or 'exact'}"
        )


def goals(runs: Sequence[Drained]) -> dict[str, Goal]:
    """The goals of what ran. A run that was not exact fails its goal."""
    found: dict[str, Goal] = {}
    free = [run for run in runs if run.limit is None]
    if free:
        seconds = [run.for_goal_s for run in free]
        met = median(seconds) < GOAL_S and not any(run.wrong for run in free)
        goal = f"{GOAL_EVENTS:,} parked meter events drained in < {GOAL_S:.0f} s without limiter"
        found["drain"] = Goal(goal, spread(seconds, " s"), met)
    limited = [run for run in runs if run.limit is not None]
    if limited:
        shares = [run.share for run in limited]
        refused = max(run.limited for run in limited)
        kept_pace = median(shares) >= GOAL_SHARE and refused < GOAL_LIMITED
        goal = (
            f"a backlog drained at >= {GOAL_SHARE} of the {limited[0].limit}/s that a limiter "
            f"permits, with < {100 * GOAL_LIMITED} % answers 429"
        )
        figure = f"{spread(shares, '')}, at most {100 * refused:.2f} % 429"
        why = "" if kept_pace else limited[-1].line()
        found["P5"] = Goal(goal, figure, kept_pace and not any(run.wrong for run in limited), why)
    return found


def main(arguments: Sequence[str]) -> int:
    """All runs."""
    asked = _arguments(arguments)
    runs: list[Drained] = []
    with running_server({}) as server:
        for _ in range(asked.runs):
            for events, limit in ((asked.events, None), (asked.limited, asked.limit)):
                if events == 0:
                    continue
                database = server.create("ledger")
                with _stand_in(limit or UNLIMITED) as (url, pid):
                    spent = uvloop.run(_run(database, url, pid, events, limit, asked.lanes))
                    wrong = tuple(_differences(database, url))
                    limited = _limited(url)
                runs.append(Drained(events, spent, limit, wrong, limited))
                server.drop(database)
                say(runs[-1].line())
    reached = goals(runs)
    free = [run.events / run.spent.seconds for run in runs if run.limit is None]
    put_sizes({"publish_per_s": median(free)} if free else {}, asked.out)
    tell(reached, asked.out)
    return int(any(run.wrong for run in runs))


async def _run(
    database: Database, url: str, stand_in: int, events: int, limit: int | None, lanes: int
) -> Spent:
    dsn = database.dsn(database.login("ledger_service"))
    async with open_ledger(dsn) as ledger:
        await ledger.catalogue.append_meters([JOBS], "bench")
        _fill(database, FILL.format(events=events))
        nowhere = StripeSettings("sk_test_bench", "http://127.0.0.1:9", connections_max=lanes)
        async with StripeSink(nowhere) as away:
            # Tried in vain: every meter event is frozen, has an attempt, and waits.
            while claims := await ledger.claim("bench", 1_000, 60):
                for claim in claims[:1]:
                    await away.send(claim, claim.idempotency_key)
                _fill(database, _UNSENT)
        _fill(database, PARK)
        there = StripeSettings("sk_test_bench", url, connections_max=lanes)
        server = _postmaster(database)
        async with StripeSink(there) as sink:
            before_s, ledger_s = usage(stand_in).cpu_s, usage(server).cpu_s
            seconds, cpu_s = await _drain(ledger, sink, events, limit, lanes)
            return Spent(
                seconds, cpu_s, usage(stand_in).cpu_s - before_s, usage(server).cpu_s - ledger_s
            )


_UNSENT: Final = """
UPDATE ledger.attempt SET finished_at = now(), outcome = 'Retry', cause = 'ClientConnectorError'
WHERE finished_at IS NULL;
UPDATE ledger.lane SET claimed_by = NULL, claimed_until = NULL, attempt_id = NULL
WHERE claimed_by IS NOT NULL;
"""


async def _drain(
    ledger: Ledger, sink: StripeSink, events: int, limit: int | None, lanes: int
) -> tuple[float, float]:
    """The worker's publishing without its worker: seconds and CPU seconds until all is there."""
    limits = PublishLimits(
        worker="bench",
        lanes=lanes,
        lease_s=60,
        request_s_max=13.0,
        rate_per_s=limit or UNLIMITED,
    )
    publisher = Publisher(ledger, sink, SystemClock(), limits, random.random)
    channel: asyncio.Queue[Lent] = asyncio.Queue()

    async def publish() -> None:
        while True:
            await publisher.publish(await channel.get())

    agents = [asyncio.create_task(publish()) for _ in range(limits.lent_max)]
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    while publisher.figures.states.get("recorded", 0) < events:
        await publisher.look(channel.put)
        await publisher.rest(0.5)
    seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)
    return seconds, cpu_s


def _postmaster(database: Database) -> int:
    """The process that all of the database server's are children of."""
    with database.connect() as admin:
        return postmaster(admin.info.backend_pid)


def _fill(database: Database, statements: str) -> None:
    with database.connect() as admin:
        admin.execute(statements.encode())


def _differences(database: Database, url: str) -> Iterator[str]:
    """The stand-in's multiset against the ledger's settled one."""
    with database.connect() as admin:
        rows = admin.execute(
            "SELECT identifier, value FROM ledger.meter_event WHERE state = 'recorded'"
        ).fetchall()
        unsettled = admin.execute(
            "SELECT count(*) FROM ledger.balance WHERE total + decided <> settled"
        ).fetchone()
    at_stripe = Counter((event["identifier"], event["value"]) for event in StandIn(url).oracle())
    if at_stripe != Counter(rows):
        yield f"Stripe holds {at_stripe.total()} meter events, the ledger {len(rows)}"
    if unsettled and unsettled[0]:
        yield f"{unsettled[0]} windows are not settled"


def _limited(url: str) -> float:
    """Share of the answers that the limiter gave."""
    counts = StandIn(url).request_counts()
    answers = sum(count for what, count in counts.items() if what.startswith("status "))
    return counts.get("status 429", 0) / answers


@contextmanager
def _stand_in(rate_limit: int) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory(prefix="tailrace-drain-") as folder:
        command = (
            sys.executable, "-m", "sandbox.stripe_sandbox", "--state-dir", folder,
            "--rate-limit", str(rate_limit), "--auto-create-meters",
        )  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            yield ready.split("ready: ")[1].split(" ")[0], process.pid
        finally:
            process.terminate()
            process.wait(30)
            if process.stdout is not None:
                process.stdout.close()


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench drain", description=__doc__)
    add = parser.add_argument
    add("--events", type=int, default=GOAL_EVENTS, help="meter events without a limiter")
    add("--limited", type=int, default=5_000, help="meter events with a limiter")
    add("--limit", type=int, default=500, help="requests a second that the limiter permits")
    add("--lanes", type=int, default=64, help="requests in flight")
    add("--runs", type=int, default=3, help="times each")
    add("--out", type=Path, default=FOLDER, help="where the summary goes")
    return parser.parse_args(arguments)
