"""`python -m tests.bench latency`: commit of usage to its acceptance, and what a call costs.

A whole sandbox with capture and one worker, which rests between its rounds as production does. A
writer records events of a meter that publishes each of them, so many a second whatever becomes of
them, for customers by turns; the stand-in notes when it took each one. Before that, on the quiet
stack, `record_usage` and a plain insert of the same row take turns. Exit code 1 if an amount is
missing, doubled or different.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final

import psycopg
import requests

from sandbox.stripe_sandbox.client import StandIn
from streams.adapters.clock import SystemClock
from streams.settings import Settings
from tests.bench.hops import hops_ms
from tests.bench.process_tree import usage
from tests.bench.summary import FOLDER, Goal, put_sizes, tell
from tests.support.live import LiveStack, live_stack
from tests.support.waiting import NotInTimeError, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

P50_MS: Final = 250.0
P99_MS: Final = 1_000.0
OVER_INSERT_MS: Final = 1.0
METRIC: Final = "exports"
WRITERS: Final = 4
WARM_UP_S: Final = 3.0
"""At the begin of the load, not counted: caches, plans and connections are made then."""
SETTLED_WITHIN_S: Final = 60.0
PACE: Final[dict[str, Any]] = {"facts_interval_ms": 1_000, "publish_interval_ms": 500}
"""Pauses of the worker as its settings have them without a sandbox."""
CLOCK: Final = SystemClock()
RECORD: Final = b"SELECT * FROM metering.record_usage(%s, %s, %s, %s)"
INSERT: Final = b"""
INSERT INTO bench_plain (event_id, tenant_id, metric, quantity, event_key, payload)
VALUES (gen_random_uuid(), %s, %s, %s, %s, jsonb_build_object('tenant', %s::text, 'key', %s::text))
"""
PLAIN: Final = b"""
CREATE TABLE bench_plain (
    event_id uuid PRIMARY KEY, tenant_id text NOT NULL, metric text NOT NULL,
    quantity numeric NOT NULL, event_key text NOT NULL, payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
GRANT INSERT ON bench_plain TO PUBLIC;
"""
CUSTOMERS: Final = b"""
INSERT INTO ledger.customer (tenant_id, effective_from, customer, actor)
SELECT 'bench-' || n, ledger.at(0), 'cus_bench_' || n, 'bench'
FROM generate_series(0, %s - 1) AS n
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What the writer did, and what became of it."""

    latencies_ms: tuple[float, ...]
    """From just before the commit to acceptance, after the warm-up."""
    written_per_s: float
    worker_cpu: float
    """Of one core, while the load lasted."""
    hops_ms: Mapping[str, float]
    """Median from one hop to the next."""
    wrong: tuple[str, ...]


class Writer:
    """Records events by a timetable; one that is late does not move the next."""

    def __init__(self, dsn: str, per_s: int, events: int, tenants: int) -> None:
        self._dsn = dsn
        self.per_s = per_s
        self._events = events
        self._tenants = tenants
        self.committed_s: dict[int, float] = {}
        """Number of the event → wall clock just before its commit."""

    def run(self) -> float:
        """Writes all of them; seconds taken."""
        began_s = time.monotonic()
        threads = [threading.Thread(target=self._write, args=(n, began_s)) for n in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began_s

    def _write(self, first: int, began_s: float) -> None:
        with psycopg.connect(self._dsn) as conn:
            for number in range(first, self._events, WRITERS):
                time.sleep(max(0.0, began_s + number / self.per_s - time.monotonic()))
                conn.execute(
                    RECORD,
                    (f"bench-{number % self._tenants}", METRIC, number + 1, f"order-{number}"),
                )
                self.committed_s[number] = CLOCK.now_us() / 1e6
                conn.commit()


def loaded(stack: LiveStack, per_s: int, seconds: float, tenants: int, chunk_wait_ms: int) -> Load:
    """Writes for so long and waits until everything is at the stand-in."""
    facts = stack.facts
    with psycopg.connect(facts["ledger_owner_dsn"], autocommit=True) as ledger:
        ledger.execute(CUSTOMERS, (tenants,))
    worker = stack.start_worker("bench", **PACE, chunk_wait_ms=chunk_wait_ms)
    until("the worker to serve", lambda: _serves(worker.said("probe")), 60)
    stand_in = stack.stand_in
    writer = Writer(facts["writer_dsn"], per_s, int(per_s * seconds), tenants)
    cpu_s = usage(worker.process.pid).cpu_s
    took_s = writer.run()
    cpu_s = usage(worker.process.pid).cpu_s - cpu_s
    expected = {number + 1: number for number in writer.committed_s}
    wrong: tuple[str, ...] = ()
    try:
        until("all to arrive", lambda: _arrived(stand_in) >= len(expected), SETTLED_WITHIN_S)
    except NotInTimeError as error:
        wrong = (str(error),)
    received = [e for e in stand_in.oracle() if e["event_name"] == METRIC]
    wrong += differences(received, expected, tenants)
    warm = int(WARM_UP_S * per_s)
    ends = {
        event["value"]: (writer.committed_s[number], event["received_at_us"] / 1e6)
        for event in received
        if (number := expected.get(int(event["value"]), -1)) >= warm
    }
    latencies = tuple(
        (accepted_s - committed_s) * 1_000 for committed_s, accepted_s in ends.values()
    )
    hops = hops_ms(facts["ledger_owner_dsn"], facts["kafka_bootstrap"], METRIC, ends)
    return Load(latencies, len(expected) / took_s, cpu_s / took_s, hops, wrong)


def _serves(said: Sequence[Mapping[str, object]]) -> bool:
    """Whether a worker that has told where it answers is ready by now."""
    if not said:
        return False
    return requests.get(f"{said[-1]['address']}/ready", timeout=5).ok


def _arrived(stand_in: StandIn) -> int:
    return sum(e["event_name"] == METRIC for e in stand_in.oracle())


def differences(
    received: Sequence[Mapping[str, str]], expected: Mapping[int, int], tenants: int
) -> tuple[str, ...]:
    """Amounts and customers at the stand-in against what was recorded; every amount is another."""
    found = Counter((event["customer"], int(event["value"])) for event in received)
    wanted = Counter((f"cus_bench_{number % tenants}", value) for value, number in expected.items())
    missing, more = wanted - found, found - wanted
    return tuple(
        f"{counted.total()} {what}, such as {next(iter(counted))}"
        for what, counted in (("missing", missing), ("not recorded or doubled", more))
        if counted
    )


Timed = tuple[float, float]
"""Milliseconds of a statement, and of the commit after it."""


def calls(stack: LiveStack, count: int) -> tuple[list[Timed], list[Timed]]:
    """Transactions with one call, and with one plain insert, by turns."""
    facts = stack.facts
    with psycopg.connect(facts["postgres_dsn"], autocommit=True) as owner:
        owner.execute(PLAIN)
    record_ms: list[Timed] = []
    insert_ms: list[Timed] = []
    with psycopg.connect(facts["writer_dsn"]) as conn:
        for number in range(count):
            tenant, key = f"quiet-{number % 100}", f"quiet-{number}"
            record_ms.append(_timed(conn, RECORD, (tenant, METRIC, 1, key)))
            insert_ms.append(_timed(conn, INSERT, (tenant, METRIC, 1, key, tenant, key)))
    # The first ones plan their statements and fill caches.
    return record_ms[count // 10 :], insert_ms[count // 10 :]


def _timed(conn: psycopg.Connection, statement: bytes, values: Sequence[object]) -> Timed:
    began_s = time.perf_counter()
    conn.execute(statement, values)
    between_s = time.perf_counter()
    conn.commit()
    return (between_s - began_s) * 1_000, (time.perf_counter() - between_s) * 1_000


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent do not exceed."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def goals(
    load: Load, per_s: int, recorded: Sequence[Timed], inserted: Sequence[Timed]
) -> dict[str, Goal]:
    """The goals; a load of which an amount is wrong misses its own."""
    record_ms, insert_ms = [sum(each) for each in recorded], [sum(each) for each in inserted]
    p50, p99 = median(load.latencies_ms), percentile(load.latencies_ms, 99)
    over = percentile(record_ms, 95) - percentile(insert_ms, 95)
    kept_up = load.written_per_s >= 0.95 * per_s
    where = ", ".join(f"{hop} {ms:.0f} ms" for hop, ms in load.hops_ms.items())
    reasons = [*load.wrong, f"medians: {where}"]
    if not kept_up:
        reasons.append(f"the writer came to {load.written_per_s:.0f}/s only")
    return {
        "P7": Goal(
            f"commit -> accepted, event mode, {per_s} events/s: p50 < {P50_MS:.0f} ms, "
            f"p99 < {P99_MS:.0f} ms",
            f"p50 {p50:.0f} ms, p99 {p99:.0f} ms; worker {100 * load.worker_cpu:.0f} % of a core",
            met=p50 < P50_MS and p99 < P99_MS and not load.wrong and kept_up,
            why="; ".join(reasons),
        ),
        "P7_record": Goal(
            f"record_usage p95 < {OVER_INSERT_MS:.0f} ms over a plain insert",
            f"{over:+.2f} ms (p95 {percentile(record_ms, 95):.2f} against "
            f"{percentile(insert_ms, 95):.2f} ms, p50 {median(record_ms):.2f} against "
            f"{median(insert_ms):.2f} ms)",
            met=over < OVER_INSERT_MS,
            why=""
            if over < OVER_INSERT_MS
            else f"p95 of statement and commit: {_split(recorded)} against {_split(inserted)} ms",
        ),
    }


def _split(timed: Sequence[Timed]) -> str:
    return " and ".join(f"{percentile(part, 95):.2f}" for part in zip(*timed, strict=True))


def main(arguments: Sequence[str]) -> int:
    """The whole measure."""
    asked = _arguments(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-latency-") as folder,
        live_stack(Path(folder) / "sandbox") as stack,
    ):
        record_ms, insert_ms = calls(stack, asked.calls)
        load = loaded(stack, asked.rate, asked.seconds, asked.tenants, asked.chunk_wait_ms)
    reached = goals(load, asked.rate, record_ms, insert_ms)
    p50, p99 = median(load.latencies_ms), percentile(load.latencies_ms, 99)
    put_sizes({"accepted_p50_ms": p50, "accepted_p99_ms": p99}, asked.out)
    tell(reached, asked.out)
    return int(bool(load.wrong))


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench latency", description=__doc__)
    add = parser.add_argument
    add("--rate", type=int, default=200, help="events a second")
    add("--seconds", type=float, default=30.0, help="how long")
    add("--tenants", type=int, default=400, help="tenants, each a customer with one lane")
    add("--chunk-wait-ms", type=int, default=Settings.chunk_wait_ms, help="the worker's setting")
    add("--calls", type=int, default=2_000, help="calls and inserts on the quiet stack")
    add("--out", type=Path, default=FOLDER, help="where the summary goes")
    return parser.parse_args(arguments)
