"""Which records → partition after partition, replayed and compared."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rocksdict import Cache

from streams import topics
from streams.cli.database import Connection, connected
from streams.cli.errors import ConfigurationError, UsageProblemError
from streams.cli.layouts import layouts_of
from streams.cli.progress import Pace
from streams.cli.replay_run import Came, Pass, Room, Rules, of_tenants, open_pass
from streams.cli.replay_told import Told, compare_chunk, read_told
from streams.cli.topic_read import TopicRead, reading
from streams.core.catalogue import Catalogue, history_hash
from streams.core.identity import log_uuid
from streams.core.instant import LAST_US
from streams.core.replay import Compared, Difference, Reach, compare_readings
from streams.core.trial import Figure, Name, summed
from streams.engine.generations import width_ms
from streams.engine.layout import Layout
from streams.engine.log import LogId
from streams.kafka_access import client_security
from streams.settings import Settings

CACHE_BYTES: Final = 64 << 20
HOUR_MS: Final = 3_600_000
STATE_FILE: Final = "replay.json"
_OFFSETS: Final = re.compile(r"(\d{1,4})(?::(\d{1,18})?-(\d{1,18})?)?")

Offsets = Mapping[int, tuple[int, int | None]]


class Wanted(NamedTuple):
    """What is asked for. Offsets are inclusive; times are the log's, in microseconds."""

    offsets: Offsets
    """By partition; empty for all."""
    from_us: int | None
    to_us: int | None
    tenants: tuple[str, ...] | None
    other: Catalogue | None


class _State(msgspec.Struct, frozen=True):
    """What a kept state is of: another replay must not go on with it."""

    v: int
    log_id: str
    tenants: tuple[str, ...] | None
    other: str | None
    starts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Part:
    """One partition, replayed."""

    partition: int
    first: int
    last: int
    """Offsets, inclusive; `last` below `first` for none."""
    whole: bool
    """Up to the last record whose facts the ledger has."""
    told: Told
    came: Came
    readings: Compared
    other: Came | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """All of them, and partitions of which the ledger was told nothing."""

    log_id: str
    wanted: Wanted
    parts: list[Part] = field(default_factory=list)
    untold: list[int] = field(default_factory=list)

    def figures(self, *, other: bool) -> dict[Name, Figure]:
        """What the records came to, under the original rules or the others."""
        came = (part.other if other else part.came for part in self.parts)
        return summed(each.figures for each in came if each is not None)


def parse_offsets(texts: Sequence[str]) -> Offsets:
    """`3`, `3:100-200`, `3:100-`: partitions and offsets, inclusive.

    Raises:
        UsageProblemError: a text is none, or a partition is named twice.
    """
    found: dict[int, tuple[int, int | None]] = {}
    for text in texts:
        parts = _OFFSETS.fullmatch(text)
        if parts is None or int(parts[1]) in found:
            raise UsageProblemError(
                f"--offsets: {text!r} is no partition with offsets, or one named twice",
                fix="`--offsets 3:100-200`, `--offsets 3:100-` or `--offsets 3`",
            )
        last = None if parts[3] is None else int(parts[3])
        found[int(parts[1])] = int(parts[2] or 0), last
    return found


def replay_all(settings: Settings, wanted: Wanted, state: Path | None, pace: Pace) -> Replayed:
    """Replays what is asked for, partition by partition.

    Raises:
        KafkaException, TopicsError: the topic cannot be read.
        psycopg.Error: the ledger refused.
    """
    topic_id = topics.id_of(settings.kafka_bootstrap, topics.EVENTS, client_security(settings))
    log_id = log_uuid(topic_id)
    with ExitStack() as open_:
        folder = open_.enter_context(_folder(state))
        ledger = open_.enter_context(connected(settings.ledger_dsn, "the ledger"))
        topic = open_.enter_context(reading(settings, topics.EVENTS, "replay"))
        partitions = topic.partitions()
        ranges = _ranges(topic, wanted, partitions)
        _own(folder, wanted, log_id, ranges)
        room = Room(width_ms(settings.horizon_h * HOUR_MS), Cache(CACHE_BYTES))
        layouts = layouts_of(ledger, topic_id, len(partitions))
        run = _Run(ledger, topic, wanted, folder, layouts, room, pace)
        replayed = Replayed(log_id, wanted)
        for partition, (low, start, end) in ranges.items():
            part = run.partition(partition, low, start, end)
            if part is None:
                replayed.untold.append(partition)
            else:
                replayed.parts.append(part)
        return replayed


@contextmanager
def _folder(state: Path | None) -> Iterator[Path]:
    if state is None:
        with tempfile.TemporaryDirectory(prefix="tailrace-replay-") as folder:
            yield Path(folder)
        return
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblemError(
            f"--state: {state}: {error.strerror}", fix="name a folder that can be written"
        ) from error
    yield state


Ranges = dict[int, tuple[int, int, int | None]]
"""By partition: the first offset that is there, the first wanted, the one after the last wanted,
None for all that the ledger was told of."""


def _ranges(topic: TopicRead, wanted: Wanted, partitions: Sequence[int]) -> Ranges:
    unknown = sorted(set(wanted.offsets) - set(partitions))
    if unknown:
        raise UsageProblemError(
            f"--offsets: {topic.name} has no partition {unknown[0]}",
            fix=f"partitions are 0 to {len(partitions) - 1}",
        )
    ranges: Ranges = {}
    for partition in sorted(wanted.offsets or partitions):
        low, high = topic.marks(partition)
        start, last = wanted.offsets.get(partition, (0, None))
        end = None if last is None else min(last + 1, high)
        if wanted.from_us is not None:
            start = max(start, topic.offset_at(partition, -(-wanted.from_us // 1_000), high))
        if wanted.to_us is not None:
            behind = topic.offset_at(partition, -(-wanted.to_us // 1_000), high)
            if behind < high:
                end = behind if end is None else min(end, behind)
        ranges[partition] = low, max(low, start), end
    return ranges


def _own(folder: Path, wanted: Wanted, log_id: str, ranges: Ranges) -> None:
    """The folder is empty, or of this very replay."""
    mine = _State(
        v=1,
        log_id=log_id,
        tenants=wanted.tenants,
        other=None if wanted.other is None else history_hash(wanted.other.versions).hex(),
        starts={str(partition): start for partition, (_, start, _) in ranges.items()},
    )
    path = folder / STATE_FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_State)
    except FileNotFoundError:
        if any(folder.iterdir()):
            raise UsageProblemError(
                f"--state: {folder} holds something else", fix="name an empty folder"
            ) from None
        path.write_bytes(msgspec.json.encode(mine))
        return
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error}", fix="begin anew: `--state` another folder"
        ) from error
    if found != mine:
        raise UsageProblemError(
            f"--state: {folder} is of another replay: of another log, start, tenants or rules",
            fix="type what was typed then, or begin anew: `--state` another folder",
        )


class _Run:
    """What every partition is replayed with."""

    def __init__(  # noqa: PLR0913, PLR0917 - one of each, kept for all partitions
        self, ledger: Connection, topic: TopicRead, wanted: Wanted, folder: Path,
        layouts: Sequence[Layout], room: Room, pace: Pace,
    ) -> None:  # fmt: skip
        self._ledger, self._topic, self._wanted = ledger, topic, wanted
        self._folder, self._layouts, self._room, self._pace = folder, layouts, room, pace
        self._tenants = (
            None if wanted.tenants is None else frozenset(t.encode() for t in wanted.tenants)
        )

    def partition(self, partition: int, low: int, start: int, before: int | None) -> Part | None:
        """One partition, up to what the ledger has of it at this moment."""
        log_id = log_uuid(self._layouts[partition].topic_id)
        told = read_told(self._ledger, log_id, partition, self._wanted.tenants)
        if told is None:
            return None
        end = told.position + 1 if before is None else min(before, told.position + 1)
        whole = end == told.position + 1
        reach = Reach(self._from_us(partition, low, start, end), whole)
        with ExitStack() as open_:
            mine = self._open(open_, "original", partition, start, told, told.catalogue)
            mine.compare = partial(compare_chunk, self._ledger, told, reach=reach)
            passes = [mine]
            if self._wanted.other is not None:
                passes.append(
                    self._open(open_, "other", partition, start, told, self._wanted.other)
                )
            self._read(partition, passes, end)
            return self._part(partition, start, end, told, reach, passes)

    def _from_us(self, partition: int, low: int, start: int, end: int) -> int | None:
        """The log's time at the first record; None where nothing can have come before it.

        Before the first record of a partition that came when the topic grew, its keys were another
        partition's.
        """
        if start == low == 0 and self._layouts[partition].begun_with is not None:
            return None
        with closing(self._topic.read(partition, start, end)) as batches:
            first = next(batches, None)
        # Where nothing is read, nothing is compared.
        return first[0].timestamp()[1] * 1_000 if first else LAST_US

    def _open(
        self, open_: ExitStack, name: str, partition: int, start: int, told: Told,
        catalogue: Catalogue,
    ) -> Pass:  # fmt: skip
        layout = self._layouts[partition]
        log = LogId(topics.EVENTS, layout.topic_id, partition)
        rules = Rules(topics.EVENTS, layout, catalogue, told.skips, told.unread)
        one = open_pass(self._folder / name / str(partition), log, rules, start, self._room)
        open_.callback(one.table.close)
        return one

    def _read(self, partition: int, passes: list[Pass], end: int) -> None:
        at = min(one.table.applied for one in passes) + 1
        total, done = max(0, end - at), 0
        with closing(self._topic.read(partition, at, end)) as batches:
            for messages, read in of_tenants(batches, self._tenants):
                for one in passes:
                    one.take(messages)
                done += read
                self._pace.show(done, total)
                if passes[0].held is not None:
                    break

    def _part(
        self, partition: int, start: int, end: int, told: Told, reach: Reach, passes: list[Pass]
    ) -> Part:
        mine = passes[0]
        if (held := mine.held) is not None:
            where = f"partition {partition} offset {held.offset}"
            readings = Compared(differences=[Difference("held", where, held.reason, "gone on")])
        else:
            everybody = self._tenants is None
            readings = compare_readings(mine.readings, told.sums, reach, cells=everybody)
        other = passes[1].came() if len(passes) > 1 else None
        return Part(partition, start, end - 1, reach.whole, told, mine.came(), readings, other)
