"""A partition that lives on: usage, copies, other contents, time, chunks, deaths and replays.

Memory is kept in generations as the state store keeps it, and forgotten with the log's time. What
services recorded stands in a plain model, which knows of each record what it has to be called.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.core.catalogue import Catalogue
from streams.core.decided import Decided, Place, SourceRecord
from streams.core.fact import EventFact, Series
from streams.core.instant import DAY_US, HOUR_US, SECOND_US
from streams.engine import generations as gen
from streams.engine.generations import Generation
from tests.support.events import T0_US, Partition, Record, Wire, conflict, meter, record, usage

HORIZON_US: Final = 6 * HOUR_US
WIDTH_MS: Final = gen.width_ms(HORIZON_US // 1_000)
LATE_US: Final = 3 * HOUR_US
METERS: Final = (
    meter("api_calls", skew_max_us=LATE_US),
    meter("jobs", skew_max_us=LATE_US, publish="event"),
)
BOOK: Final = Catalogue(METERS, read_at_us=T0_US + 400 * DAY_US)


@dataclass(slots=True)
class Remembering(Partition):
    """Forgets as the state store does: whole generations, by the log's time."""

    applied: int = -1
    time_ms: int = 0
    current: int = 0
    forgotten_us: int = -1
    generations: tuple[Generation, ...] = ()
    ids: dict[int, dict[bytes, bytes]] = field(default_factory=dict)

    def chunk(self, log: Sequence[Record], size: int) -> list[Record]:
        """The next records, none of them in another generation than the first."""
        chunk: list[Record] = []
        for one in log[self.applied + 1 :][:size]:
            if chunk and self._number(one) != self._number(chunk[0]):
                break
            chunk.append(one)
        return chunk

    def enter(self, chunk: Sequence[Record]) -> None:
        """Memory as of a chunk, before it is judged."""
        self.current = self._number(chunk[0])
        self.floor_us = gen.floor_at(self.forgotten_us, self.generations, self.current)

    def place(self) -> Place:
        held = [self.ids[g.number] for g in gen.remembered(self.generations, self.current)]

        def look_up(identities: Sequence[bytes]) -> list[bytes | None]:
            return [
                next((ids[one] for ids in (self.pinned, *held) if one in ids), None)
                for one in identities
            ]

        return Place(
            "usage.events", self.number, look_up, lambda _key: self.number, self.readings,
            self.floor_us,
        )  # fmt: skip

    def settle(self, decided: Decided) -> None:
        Partition.settle(self, decided)
        self.forgotten_us = self.floor_us
        self.ids.setdefault(self.current, {}).update(decided.seen)
        self.generations = gen.with_ids(
            self.generations, self.current,
            received_max_us=decided.received_max_us, ids=len(decided.seen),
        )  # fmt: skip
        self.applied = decided.last

    def take(self, log: Sequence[Record], size: int) -> list[Record]:
        """One chunk to its end."""
        chunk = self.chunk(log, size)
        if chunk:
            self.enter(chunk)
            self.settle(self.decide(chunk))
            self.time_ms = max(self.time_ms, *(one.timestamp_ms for one in chunk))
        return chunk

    def _number(self, one: SourceRecord) -> int:
        return max(self.time_ms, one.timestamp_ms) // WIDTH_MS


class AdmissionMachine(RuleBasedStateMachine):
    """However a log grows and is read: each identity counts once, or waits for a person."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = T0_US
        self.log: list[Record] = []
        self.names: list[frozenset[str]] = []
        """What each record may be called."""
        self.wires: list[Wire] = []
        self.met_us: dict[tuple[str, str], int] = {}
        """When each identity with its content was met for the first time."""
        self.partition = Remembering(catalogue=BOOK)
        self.units: Counter[tuple[str, int]] = Counter()
        self.called: Counter[str] = Counter()

    # -- the log grows -----------------------------------------------------------------------------

    @rule(
        metric=st.sampled_from(("api_calls", "jobs")),
        ago=st.sampled_from((0, SECOND_US, HOUR_US, LATE_US, LATE_US + 1)),
        held=st.sampled_from((0, 0, HOUR_US, 5 * HOUR_US)),
    )
    def record(self, metric: str, ago: int, held: int) -> None:
        """A new use; its transaction may have been open for hours."""
        received_us, number = self.now_us - held, len(self.wires)
        wire = usage(
            f"order-{number}", str(4 ** (number % 20)), metric=metric,
            occurred_us=received_us - ago, received_us=received_us,
        )  # fmt: skip
        self.wires.append(wire)
        late = ago > LATE_US
        self._append(wire, {"review"} if late else {"accepted"})
        if not late:
            self.units[metric, (received_us - ago) // HOUR_US] += 4 ** (number % 20)

    @precondition(lambda self: self.wires)
    @rule(pick=st.integers(0, 99))
    def copy(self, pick: int) -> None:
        """The same once more, soon or long after."""
        wire = self.wires[pick % len(self.wires)]
        self._append(wire, {"duplicate"})

    @precondition(lambda self: self.wires)
    @rule(pick=st.integers(0, 99), quantity=st.sampled_from(("7", "8")))
    def other_content(self, pick: int, quantity: str) -> None:
        """Its key once more, telling something else."""
        first = self.wires[pick % len(self.wires)]
        if first["type"] != "usage":
            return
        wire = conflict(first, event_key=first["event_key"], quantity=quantity)
        self._append(wire, {"conflict"})

    def _append(self, wire: Wire, first: set[str]) -> None:
        key = wire["event_id"], wire["content"]
        since_us = self.met_us.get(key)
        names = first
        if since_us is not None:
            # Long after, it may be known or not; then a person looks. It never counts again.
            # Whether it is remembered anew hangs on that, so the time of the first one stays.
            known = self.now_us - since_us <= HORIZON_US
            names = {"duplicate"} if known else {"duplicate", "review", "conflict"}
        else:
            self.met_us[key] = self.now_us
        self.names.append(frozenset(names))
        self.log.append(record(wire, len(self.log), timestamp_ms=self.now_us // 1_000))

    @rule(hours=st.sampled_from((0.01, 1, 2, 5, 7, 30)))
    def wait(self, hours: float) -> None:
        self.now_us += int(hours * HOUR_US)

    # -- and is read -------------------------------------------------------------------------------

    @rule(size=st.integers(1, 9))
    def settle(self, size: int) -> None:
        before = Counter(self.partition.counts)
        chunk = self.partition.take(self.log, size)
        called = self.partition.counts - before
        assert called.total() == len(chunk)
        _match(called, [self.names[one.offset] for one in chunk])

    @precondition(lambda self: len(self.log) > self.partition.applied + 1)
    @rule(size=st.integers(1, 9))
    def die(self, size: int) -> None:
        """Decided, and not settled: nothing of it is left."""
        chunk = self.partition.chunk(self.log, size)
        self.partition.enter(chunk)
        self.partition.decide(chunk)

    @rule(size=st.integers(1, 9))
    def start_from_nothing(self, size: int) -> None:
        """All state is lost, and the log is judged again in other chunks."""
        again = Remembering(catalogue=BOOK)
        while again.applied < self.partition.applied:
            again.take(self.log[: self.partition.applied + 1], size)
        assert again.readings == self.partition.readings
        assert again.facts == self.partition.facts
        assert again.counts == self.partition.counts
        self.partition = again

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def nothing_counts_twice(self) -> None:
        told = self._told()
        assert all(units <= self.units[at] for at, units in told.items())

    def teardown(self) -> None:
        while self.partition.take(self.log, 5):
            pass
        assert self._told() == +self.units

    def _told(self) -> Counter[tuple[str, int]]:
        told: Counter[tuple[str, int]] = Counter()
        for key, reading in self.partition.readings.items():
            if isinstance(key, Series):
                told[key.metric, key.window_start_us // HOUR_US] += reading.total
        for _, fact in self.partition.facts:
            if isinstance(fact, EventFact):
                told["jobs", fact.occurred_at_us // HOUR_US] += fact.units
        return told


def _match(called: Counter[str], allowed: Sequence[frozenset[str]]) -> None:
    """Each record has a name that it may have: those with one name first, then the others."""
    left = Counter(called)
    for names in sorted(allowed, key=len):
        name = next((one for one in sorted(names) if left[one]), None)
        assert name is not None, f"{dict(called)} are called so, of {list(map(sorted, allowed))}"
        left[name] -= 1
