"""What outlives a worker: clock, brokers and ledger, in memory and by their own rules."""

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import TopicCollection, TopicPartition

from streams import topics
from streams.core.catalogue import DEFAULT_NOTICE_US, MeterVersion
from streams.core.decided import Keyed
from streams.core.fact import (
    Applied,
    CellFact,
    FactBatch,
    LedgerAnswer,
    LevelFact,
    Remembered,
    WentBack,
)
from streams.core.fact_codec import StoredFact
from streams.core.level import CellKey, Key
from streams.core.orders import HeldRecord, Orders
from streams.ports import LedgerUnavailableError
from tests.support.consumed import Message
from tests.support.events import CATALOGUE, METERS, Record

TOPIC_ID: Final = "0Iw2YxKPTZqz4yIYwHZ_Gw"
EVENTS: Final = topics.EVENTS
PARTITION: Final = 0


class Clock:
    """Never stands still, so that what is asked later is later; jumps when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def now_us(self) -> int:
        return int(self.now_s * 1_000_000)

    def elapsed_s(self) -> float:
        self.now_s += 0.001
        return self.now_s


@dataclass
class Broker:
    """The logs: source, outputs, packed log."""

    source: list[Record] = field(default_factory=list)
    topic_id: str = TOPIC_ID
    """This life of the source's topic."""
    low: int = 0
    """First offset that retention left of the source."""
    packed: list[bytes] = field(default_factory=list)
    packed_low: int = 0
    """First offset that retention left of the packed log."""
    outputs: dict[str, list[Keyed]] = field(default_factory=dict)
    partition: int = PARTITION
    """The one whose logs these are."""
    partitions: int = 1
    """How many the topics have."""
    others: dict[int, "Broker"] = field(default_factory=dict)
    """The logs of other partitions, where a test has more than one."""

    def of(self, partition: int) -> "Broker":
        """The logs of a partition."""
        return self if partition == self.partition else self.others[partition]

    def log(self, topic: str) -> list[Record]:
        if topic == topics.ADMIT_LOG:
            packed = [Record(n, 0, None, value) for n, value in enumerate(self.packed)]
            return packed[self.packed_low :]
        return [record for record in self.source if record.offset >= self.low]

    def marks(self, topic: str) -> tuple[int, int]:
        if topic == topics.ADMIT_LOG:
            return self.packed_low, len(self.packed)
        return self.low, (self.source[-1].offset + 1 if self.source else 0)


class Consumer:
    """The reading half of a confluent-kafka consumer over a `Broker`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[Message] = []

    def get_watermark_offsets(self, at: TopicPartition, **_: Any) -> tuple[int, int]:
        return self._broker.of(at.partition).marks(at.topic)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        place = places[0]
        log = self._broker.of(place.partition).log(place.topic)
        self._waiting = [
            Message(place.topic, place.partition, r) for r in log if r.offset >= place.offset
        ]

    def unassign(self) -> None:
        self._waiting = []

    def consume(self, limit: int, _timeout_s: float) -> list[Message]:
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return taken

    def close(self) -> None:
        self._waiting = []


class Admin:
    """Knows the topics' ids."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def describe_topics(self, topics: TopicCollection, **kwargs: Any) -> dict[str, "Future[Any]"]:
        del kwargs
        answers: dict[str, Future[Any]] = {}
        for name in topics.topic_names:
            topic_id = self._broker.topic_id if name == EVENTS else TOPIC_ID
            partitions = [None] * self._broker.partitions
            answers[name] = Future()
            answers[name].set_result(SimpleNamespace(topic_id=topic_id, partitions=partitions))
        return answers


class PackedProducer:
    """Appends to the broker's packed log at once."""

    def __init__(self, broker: Broker, effects: list[str]) -> None:
        self._broker, self._effects = broker, effects
        self.fault: Exception | None = None

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], None] | None = None,
    ) -> None:
        del topic, partition
        if self.fault is not None:
            raise self.fault
        self._broker.packed.append(value or b"")
        self._effects.append("packed")
        offset = len(self._broker.packed) - 1
        if on_delivery is not None:
            on_delivery(None, SimpleNamespace(offset=lambda: offset))

    def poll(self, timeout: float = -1) -> int:
        del timeout
        return 0

    def flush(self, timeout: float = -1) -> int:
        del timeout
        return 0


class Outputs:
    """A producer's queue, which dies with its process, before the broker's output topics."""

    def __init__(self, broker: Broker, effects: list[str]) -> None:
        self._broker, self._effects = broker, effects
        self.queue: list[tuple[str, Keyed]] = []
        self.fault: Exception | None = None
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """Runs while the brokers take their time."""

    def produce(self, topic: str, key: bytes | None, value: bytes) -> None:
        self.queue.append((topic, (key, value)))

    async def flush(self) -> None:
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.fault is not None:
            raise self.fault
        for topic, keyed in self.queue:
            self._broker.outputs.setdefault(topic, []).append(keyed)
        self.queue = []
        self._effects.append("outputs")


class Ledger:
    """The ledger's side of facts and of the catalogue, by its own rules, in dictionaries."""

    def __init__(self) -> None:
        self.versions: list[MeterVersion] = list(METERS)
        self.now_us = CATALOGUE.read_at_us
        self.away = False
        self.ordered = Orders()
        self.held: list[HeldRecord] = []
        self.levels: dict[Key, LevelFact] = {}
        self.cells: dict[Key, CellFact] = {}
        self.facts: dict[object, StoredFact] = {}
        self.positions: dict[tuple[str, int], int] = {}
        self.adopted: set[tuple[str, int]] = set()
        """Partitions whose going back a person has taken on."""
        self.batches: list[FactBatch] = []
        self.findings: list[object] = []
        self.witness: Callable[[FactBatch], None] = lambda _batch: None
        """Looks at each batch as it arrives."""
        self.committed: Callable[[], None] = lambda: None
        """Runs when a batch is in, before the answer is on its way."""
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """Runs once, while the next answer is on its way."""

    async def apply_facts(self, batch: FactBatch) -> LedgerAnswer:
        self._check()
        self.witness(batch)
        self.batches.append(batch)
        place = batch.log_id, batch.partition
        stored = self.positions.get(place, -1)
        if batch.acknowledged > stored:
            return WentBack(stored, batch.acknowledged, place in self.adopted)
        before = len(self.findings)
        for level in batch.levels:
            self._keep(self.levels, level.series, level)
        for cell in batch.cells:
            key = CellKey(cell.source, cell.minute_us, cell.verdict_class)
            self._keep(self.cells, key, cell)
        stored_facts: tuple[StoredFact, ...] = (
            *batch.events,
            *batch.corrections,
            *batch.parked,
            *batch.canaries,
        )
        for fact in stored_facts:
            self.facts.setdefault(identity_of(fact), fact)
        self.positions[place] = max(stored, batch.position)
        self.committed()
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        self._check()
        return Applied(self.positions[place], len(self.findings) - before)

    def _keep(self, kept: dict[Key, Any], key: Key, told: LevelFact | CellFact) -> None:
        known = kept.get(key)
        if known is None or (told.birth_offset == known.birth_offset and told.count > known.count):
            kept[key] = told
        elif told.birth_offset != known.birth_offset or (
            told.count == known.count and told.digest != known.digest
        ):
            self.findings.append(told)

    async def behind(self, known: Sequence[Remembered]) -> list[tuple[Remembered, WentBack]]:
        self._check()
        found = []
        for mine in known:
            place = mine.log_id, mine.partition
            stored = self.positions.get(place, -1)
            if stored < mine.acknowledged:
                answer = WentBack(stored, mine.acknowledged, place in self.adopted)
                found.append((mine, answer))
        return found

    async def position(self, log_id: str, partition: int) -> int:
        self._check()
        return self.positions.get((log_id, partition), -1)

    async def load_catalogue(self) -> tuple[list[MeterVersion], int]:
        self._check()
        return list(self.versions), self.now_us

    async def notice_us(self) -> int:
        self._check()
        return DEFAULT_NOTICE_US

    async def orders(self) -> Orders:
        self._check()
        return self.ordered

    async def report_held(self, held: HeldRecord, worker: str) -> None:
        self._check()
        assert worker
        self.held.append(held)

    def _check(self) -> None:
        if self.away:
            message = "connection refused"
            raise LedgerUnavailableError(message)


def identity_of(fact: StoredFact) -> object:
    """What the ledger keeps unique of a fact."""
    return type(fact), fact.offset
