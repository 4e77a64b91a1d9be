"""The product's worker and its ceiling, a bare loop; with its peers, all contenders by name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec
import psycopg
import requests

from sandbox.ports import free_ports
from streams import topics
from tests.bench import bare_loop
from tests.bench.contender import Command, Contender, Heat, three
from tests.bench.oracle import Tally
from tests.bench.peers import KafkaStreams, NaiveFaust, Quix
from tests.bench.workload import SCALES

PROFILE: Final = "worker.pstats"


class Tailrace(Contender):
    """The product's own worker, as `tailrace worker` runs it."""

    name = "tailrace"
    says = "the product's worker: state, packed log, outputs, facts in the ledger"
    module = "streams.worker"

    def __init__(self, heat: Heat) -> None:
        super().__init__(heat)
        self._database = f"ledger_{heat.number}"
        self._metrics = f"http://127.0.0.1:{(port := free_ports(1)[0])}/metrics"
        self._port = port
        self._owner: psycopg.Connection | None = None

    def prepare(self) -> Command:
        """A fresh ledger and fresh topics, but the same source."""
        self.stack.renew(*self.outputs(), topics.ADMIT_LOG)
        worker_dsn, owner_dsn = self.stack.fresh_ledger(self._database)
        self._owner = psycopg.connect(owner_dsn, autocommit=True)
        env = {
            **self.heat.environment(),
            **self.stack.facts["settings"],
            "TAILRACE_LEDGER_DSN": worker_dsn,
            "TAILRACE_GROUP": f"bench-{self.heat.number}",
            "TAILRACE_DATA_DIR": str(self.heat.data),
            "TAILRACE_METRICS_PORT": str(self._port),
            "TAILRACE_FACTS_INTERVAL_MS": "1000",
            "TAILRACE_LOG_LEVEL": "warning",
            # Windows of a past day are due at once. Publishing them is another job, and another
            # benchmark: here nothing is due before the clock has stopped.
            "TAILRACE_PUBLISH_INTERVAL_MS": "60000",
        }
        profiler = ("tests.bench.profiled", str(self.heat.folder / PROFILE))
        module = (*(profiler if self.heat.profile else ()), "streams.cli.main", "worker")
        return Command((*self.heat.launcher, "-m", *module), env)

    def outputs(self) -> tuple[str, str, str]:
        """The product's own topics."""
        return topics.ACCEPTED, topics.REVIEW, topics.DEAD_LETTER

    def finished(self, expected: Tally) -> bool:
        """The ledger holds the facts of every record."""
        rows = self._ask("SELECT coalesce(sum(position + 1), 0) FROM ledger.position")
        return int(rows[0][0]) >= expected.records

    def tell(self) -> Tally:
        """Totals from the ledger, counts from the topics and the worker's own metrics."""
        tally = self.from_outputs()
        tally.totals = {
            (tenant, metric, hour): (count, Decimal(total).scaleb(-SCALES[metric]))
            for tenant, metric, hour, count, total in self._ask(
                "SELECT tenant_id, metric, to_char(window_start AT TIME ZONE 'UTC',"
                " 'YYYY-MM-DD\"T\"HH24'), count, total FROM ledger.level"
            )
        }
        parked = dict(self._ask("SELECT kind, count(*) FROM ledger.parked GROUP BY kind"))
        if (parked.get("review", 0), parked.get("dead", 0)) != (tally.late, tally.malformed):
            tally.late, tally.malformed = -parked.get("review", 0), -parked.get("dead", 0)
        figures = _figures(requests.get(self._metrics, timeout=10).text)
        tally.records = int(figures["usage_records_total"])
        tally.duplicates = int(figures['usage_verdicts_total{verdict="duplicate"}'])
        return tally

    def clean(self) -> None:
        """The source topic stays for the next heat."""
        if self._owner is not None:
            self._owner.close()
        self.stack.drop_ledger(self._database)

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        if self._owner is None:
            message = "prepare comes first"
            raise RuntimeError(message)
        return self._owner.execute(statement.encode()).fetchall()


class Loop(Contender):
    """The ceiling: `bare_loop`."""

    name = "loop"
    says = "bare confluent loop: RocksDB, packed changelog, outputs; no group, no ledger"
    module = "tests.bench.bare_loop"

    @property
    def _prefix(self) -> str:
        return f"bench.loop.{self.heat.number}"

    def prepare(self) -> Command:
        """Topics of its own."""
        self.stack.renew(*self.outputs(), f"{self._prefix}.changelog")
        task = bare_loop.Task(
            bootstrap=self.stack.bootstrap,
            source=self.heat.source,
            outputs=self._prefix,
            changelog=f"{self._prefix}.changelog",
            data=str(self.heat.data),
            result=str(self.heat.folder / "result.json"),
            ends=self.stack.ends(self.heat.source),
            scales=dict(SCALES),
        )
        argument = msgspec.json.encode(task).decode()
        argv = (*self.heat.launcher, "-m", self.module, argument)
        return Command(argv, self.heat.environment())

    def outputs(self) -> tuple[str, str, str]:
        """Its own topics."""
        return three(self._prefix)

    def finished(self, expected: Tally) -> bool:
        """It has written its result."""
        del expected
        return (self.heat.folder / "result.json").exists()

    def tell(self) -> Tally:
        """Totals from its changelog: what a recovery would find."""
        tally = self.from_outputs()
        said = (self.heat.folder / "result.json").read_bytes()
        result = msgspec.json.decode(said, type=bare_loop.Result)
        tally.records, tally.duplicates = result.records, result.duplicates
        for _, value in self.stack.read(f"{self._prefix}.changelog"):
            packed = msgspec.msgpack.decode(value or b"", type=bare_loop.Packed)
            for (tenant, metric, start_us), (count, units) in packed.totals:
                hour = (bare_loop.EPOCH + start_us * bare_loop.MICROSECOND).strftime("%Y-%m-%dT%H")
                total = Decimal(units).scaleb(-SCALES[metric])
                tally.totals[tenant, metric, hour] = (count, total)
        return tally

    def clean(self) -> None:
        """All its topics."""
        self.stack.drop(*self.stack.topic_names(self._prefix))


CONTENDERS: Final[dict[str, type[Contender]]] = {
    contender.name: contender for contender in (NaiveFaust, Quix, KafkaStreams, Tailrace, Loop)
}


def _figures(exposition: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in exposition.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, _, value in lines}
