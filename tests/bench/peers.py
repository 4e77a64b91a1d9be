"""What people would pick instead: Faust as documented, quixstreams, Kafka Streams.

Each is done when all its outputs stand in their topics and its group has committed the whole
source, so that its state and its changelog are written too.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from tests.bench import installed, naive_faust
from tests.bench.contender import Command, Contender, three
from tests.bench.oracle import Tally
from tests.bench.workload import SCALES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.oracle import Series

Totals = dict["Series", tuple[int, Decimal]]
COMMIT_S: Final = 5.0
"""Between two commits of quixstreams and of Kafka Streams: the former's own default. A commit every
second took it an eighth of its speed."""
ID_BYTES: Final = 16
"""In a store with ids and totals, a longer key is a total's."""


class Peer(Contender):
    """A consumer group with outputs and changelogs that carry its name."""

    _count: Callable[[], int] | None = None

    @property
    def _group(self) -> str:
        return f"bench-{self.name}-{self.heat.number}"

    def outputs(self) -> tuple[str, str, str]:
        """Its own topics."""
        return three(self._group)

    def finished(self, expected: Tally) -> bool:
        """Every output record stands in its topic, and the source is committed."""
        if self._count is None:
            self._count = self.stack.watcher(self.outputs())
        return self._count() >= expected.outputs and self._committed() >= expected.records

    def tell(self) -> Tally:
        """Totals from its changelog; what it read, from what it committed."""
        tally = self.from_outputs()
        tally.records = self._committed()
        tally.duplicates = tally.records - tally.outputs
        tally.totals = self.totals()
        return tally

    @abstractmethod
    def totals(self) -> Totals:
        """What a recovery would find."""

    def clean(self) -> None:
        """Outputs and changelogs."""
        self.stack.drop(*self.stack.topic_names(self._group))

    def _committed(self) -> int:
        return self.stack.committed(self._group, self.heat.source)


class NaiveFaust(Peer):
    """What Faust's documentation leads to: `naive_faust`."""

    name = "faust-naive"
    says = "Faust agent as documented: tables on RocksDB with changelogs, one send per event"
    module = "tests.bench.naive_faust"

    def prepare(self) -> Command:
        """Its outputs, and the changelogs of its tables.

        Faust can make those itself, but on a busy machine its agent then meets a record before the
        client has heard of the new topics, crashes, and never comes back to that record.
        """
        changelogs = [f"{self._group}-{table}-changelog" for table in naive_faust.TABLES]
        self.stack.renew(*self.outputs(), *changelogs)
        env = {
            **self.heat.environment(),
            naive_faust.GROUP_VARIABLE: self._group,
            naive_faust.BOOTSTRAP_VARIABLE: self.stack.bootstrap,
            naive_faust.SOURCE_VARIABLE: self.heat.source,
            naive_faust.OUTPUTS_VARIABLE: self._group,
        }
        argv = (*self.heat.launcher, "-m", self.module)
        options = ("--datadir", str(self.heat.data), "worker", "-l", "warn")
        return Command((*argv, *options, "--without-web"), env)

    def totals(self) -> Totals:
        """The last value of each key."""
        totals: Totals = {}
        for key, value in self.stack.read(f"{self._group}-{naive_faust.TOTALS}-changelog"):
            tenant, metric, hour = msgspec.json.decode(key or b"", type=str).split(" ")
            count, total = msgspec.json.decode(value or b"", type=tuple[int, str])
            totals[tenant, metric, hour] = (count, Decimal(total))
        return totals


class Quix(Peer):
    """The stateful library of Python that is used most: `quix`."""

    name = "quixstreams"
    says = "quixstreams, tuned: values and state as bytes, one store with changelog, no branches"
    module = "tests.bench.quix"

    @classmethod
    def launcher(cls, say: Callable[[str], None]) -> tuple[str, ...]:
        """The interpreter of an environment of its own."""
        return (str(installed.python(say)),)

    def prepare(self) -> Command:
        """Its outputs; the changelog it makes itself, with as many partitions as the source."""
        self.stack.renew(*self.outputs())
        task = {
            "bootstrap": self.stack.bootstrap,
            "source": self.heat.source,
            "outputs": self._group,
            "group": self._group,
            "data": str(self.heat.data),
            "commit_s": COMMIT_S,
            "scales": SCALES,
        }
        argument = msgspec.json.encode(task).decode()
        return Command((*self.heat.launcher, "-m", self.module, argument), self.heat.environment())

    def totals(self) -> Totals:
        """From the store's changelog, in which ids stand too: tenant, a bar, the key."""
        totals: Totals = {}
        (changelog,) = self.stack.topic_names(f"changelog__{self._group}--")
        for key, value in self.stack.read(changelog):
            tenant, _, series = (key or b"").partition(b"|")
            if len(series) > ID_BYTES:
                metric, hour = series.decode().split(" ")
                count, units = map(int, (value or b"").split(b" "))
                total = Decimal(units).scaleb(-SCALES[metric])
                totals[tenant.decode(), metric, hour] = (count, total)
        return totals


class KafkaStreams(Peer):
    """Kafka's own library, on the JVM: `kafka_streams/Admit.java`."""

    name = "kafka-streams"
    says = "Kafka Streams (Java): Processor API, two RocksDB stores with changelogs, one thread"
    module = None

    @classmethod
    def launcher(cls, say: Callable[[str], None]) -> tuple[str, ...]:
        """Java with the class path."""
        return installed.streams(say)

    def prepare(self) -> Command:
        """Its outputs; the changelogs it makes itself."""
        self.stack.renew(*self.outputs())
        topics = (self.stack.bootstrap, self.heat.source, self._group)
        scales = (f"{metric}={scale}" for metric, scale in SCALES.items())
        commit_ms = f"{COMMIT_S * 1_000:.0f}"
        arguments = (*topics, self._group, str(self.heat.data), commit_ms, *scales)
        return Command((*self.heat.launcher, *arguments), self.heat.environment())

    def totals(self) -> Totals:
        """The last value of each key: count and units, eight bytes each."""
        totals: Totals = {}
        for key, value in self.stack.read(f"{self._group}-totals-changelog"):
            tenant, metric, hour = (key or b"").decode().split(" ")
            count, units = struct.unpack(">qq", value or b"")
            totals[tenant, metric, hour] = (count, Decimal(units).scaleb(-SCALES[metric]))
        return totals
