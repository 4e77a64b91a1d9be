"""Records of a partition → decided again by the same rules, in a state of their own.

The state is that of a worker, in a folder that is nobody else's: ids are forgotten when a worker
forgets them. Each chunk and what came of it are one write, so a replay that was stopped goes on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import Message
from rocksdict import Cache

from streams.cli.errors import ConfigurationError
from streams.core.admission import decide
from streams.core.catalogue import Catalogue
from streams.core.decided import Decided, Hold, Place
from streams.core.level import Key, Reading, decode_key, decode_reading, encode_key, encode_reading
from streams.core.orders import Skips
from streams.core.replay import Compared, Difference
from streams.core.trial import Figure, Name, figures_of, summed
from streams.engine.cut import cut
from streams.engine.errors import StateDamaged
from streams.engine.layout import Layout
from streams.engine.log import LogId, Record, anchor_of
from streams.engine.partitioner import home_of
from streams.engine.settlement import Settlement, unsent_key
from streams.engine.table import PartitionTable, open_table

RECORDS_MAX: Final = 5_000
BYTES_MAX: Final = 8 << 20
DIFFERENCES_MAX: Final = 1_000
"""Kept of each chunk by name; the rest is counted."""

Compare = Callable[[Decided], Compared]


class _Note(msgspec.Struct, frozen=True, array_like=True):
    """What came of one chunk."""

    records: int
    equal: int
    partly: int
    differing: int
    differences: list[Difference]
    figures: list[tuple[str, str, int, int]]


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a partition so far."""

    records: int
    compared: Compared
    differing: int
    figures: dict[Name, Figure]


@dataclass(frozen=True, slots=True)
class Rules:
    """What records are judged by."""

    topic: str
    layout: Layout
    catalogue: Catalogue
    skips: Skips
    unread: frozenset[int]


class Pass:
    """One partition under one rule book."""

    def __init__(self, table: PartitionTable, rules: Rules) -> None:
        self.table = table
        self._rules = rules
        self.compare: Compare | None = None
        """Holds each chunk against the ledger; None: nobody asks."""
        self._home = home_of(rules.layout.partitions)
        self.readings: dict[Key, Reading] = {
            decode_key(key): decode_reading(value) for key, value in table.levels()
        }
        self.held: Hold | None = None

    def take(self, messages: Sequence[Message]) -> None:
        """Decides them, up to the first that holds its partition."""
        while messages and self.held is None:
            records, used, suspect = self._cut(messages)
            messages = messages[used:]
            if records:
                self._chunk(records, suspect)

    def came(self) -> Came:
        """Everything that came of it, from the state: what was before an interruption too."""
        notes = [
            msgspec.msgpack.decode(value, type=_Note)
            for _, value in self.table.unsent(1 << 62, self.table.applied)
        ]
        compared = Compared(
            sum(note.equal for note in notes),
            sum(note.partly for note in notes),
            [difference for note in notes for difference in note.differences],
        )
        figures = summed(
            {(metric, verdict): Figure(events, units)}
            for note in notes
            for metric, verdict, events, units in note.figures
        )
        records = sum(note.records for note in notes)
        return Came(records, compared, sum(note.differing for note in notes), figures)

    def _cut(self, messages: Sequence[Message]) -> tuple[list[Record], int, int | None]:
        """The next chunk; a record that workers never read stands alone, as it did."""
        ends, most, suspect = len(messages), RECORDS_MAX, None
        for place, message in enumerate(messages if self._rules.unread else ()):
            if message.offset() in self._rules.unread:
                ends = place or 1
                suspect, most = (message.offset(), 1) if place == 0 else (None, RECORDS_MAX)
                break
        records, used = cut(messages[:ends], self.table, records_max=most, bytes_max=BYTES_MAX)
        return records, used, suspect

    def _chunk(self, records: list[Record], suspect: int | None) -> None:
        table, rules = self.table, self._rules
        table.enter(max(record.timestamp_ms for record in records))
        place = Place(
            topic=rules.topic,
            partition=table.log.partition,
            lookup=table.seen,
            home=self._home,
            readings=self.readings,
            floor_us=table.floor_us,
            suspect=suspect,
            skips=rules.skips,
            settled_at=rules.layout.settled_at,
            home_before=rules.layout.home_before,
            origins=rules.layout.origins,
        )
        decided = decide(records, place, rules.catalogue, fresh=True)
        if isinstance(decided.stop, Hold):
            self.held = decided.stop
        settled = [record for record in records if record.offset <= decided.last]
        if settled:
            table.settle(self._settlement(settled, decided))
            self.readings.update(decided.readings)

    def _settlement(self, records: list[Record], decided: Decided) -> Settlement:
        compared = Compared() if self.compare is None else self.compare(decided)
        figures = figures_of(decided, self.readings)
        note = _Note(
            len(records),
            compared.equal,
            compared.partly,
            len(compared.differences),
            compared.differences[:DIFFERENCES_MAX],
            [(*name, *figure) for name, figure in figures.items()],
        )
        last = records[-1]
        return Settlement(
            first=self.table.applied + 1,
            last=decided.last,
            anchor=anchor_of(last.offset, last.key, last.value),
            catalogue_hash=self._rules.catalogue.hash,
            timestamp_ms_max=max(record.timestamp_ms for record in records),
            received_max_us=decided.received_max_us if decided.seen else -1,
            seen=decided.seen,
            pinned=decided.pinned,
            levels=[(encode_key(k), encode_reading(r)) for k, r in decided.readings.items()],
            unsent=[(unsent_key(decided.last, 0), msgspec.msgpack.encode(note))],
        )


class Room(NamedTuple):
    """What states are opened with."""

    width_ms: int
    """Of a generation, as the workers have it."""
    cache: Cache


def open_pass(path: Path, log: LogId, rules: Rules, start: int, room: Room) -> Pass:
    """Opens its state, or makes an empty one that begins with the record at `start`.

    Raises:
        ConfigurationError: what was kept there cannot be read by this release.
    """
    try:
        table = open_table(
            path, log, partitions=rules.layout.partitions, width_ms=room.width_ms, cache=room.cache
        )
    except StateDamaged as damage:
        # A worker's would be rebuilt by itself; of this one only its owner knows what it is for.
        raise ConfigurationError(
            f"--state: {path} is damaged, or of a release that keeps its state in another format",
            fix="begin anew: `--state` another folder, or delete this one",
        ) from damage
    if not table.meta.complete:
        begun = msgspec.structs.replace(table.meta, complete=True, applied=start - 1)
        table.replace(lambda _: None, begun)
    return Pass(table, rules)


def of_tenants(
    batches: Iterator[list[Message]], tenants: frozenset[bytes] | None
) -> Iterator[tuple[list[Message], int]]:
    """Messages of these tenants, shards included, with the number that was read for them."""
    for batch in batches:
        if tenants is None:
            yield batch, len(batch)
        else:
            own = [m for m in batch if (m.key() or b"").partition(b"#")[0] in tenants]
            yield own, len(batch)
