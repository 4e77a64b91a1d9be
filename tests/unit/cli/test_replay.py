"""A partition replayed by the workers' own rules, in a state that survives an interruption."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from rocksdict import Cache

from streams.cli.boundary import explain
from streams.cli.errors import ConfigurationError, UsageProblemError
from streams.cli.replay_parts import _Run, parse_offsets
from streams.cli.replay_run import Pass, Room, Rules, of_tenants, open_pass
from streams.core.decided import Decided
from streams.core.fact import ParkedFact
from streams.core.instant import DAY_US
from streams.core.level import Reading
from streams.core.orders import Skip, fingerprint
from streams.core.replay import Compared, Difference
from streams.core.trial import Figure
from streams.engine import table_meta
from streams.engine.layout import Layout, ungrown
from streams.engine.log import LogId
from streams.engine.log import Record as LogRecord
from streams.engine.partitioner import home_partition
from tests.support.consumed import Message
from tests.support.events import CATALOGUE, T0_US, Partition, Record, log_of, sharded, usage

LOG = LogId("usage.events", "AAAAAAAAAAAAAAAAAAAAAA", 0)
RULES = Rules("usage.events", ungrown("AAAAAAAAAAAAAAAAAAAAAA", 1, 0), CATALOGUE, {}, frozenset())
USES = [usage(f"order-{number}", str(number)) for number in range(9)]
DAY_MS = DAY_US // 1_000


def messages(records: Sequence[Record], partition: int = 0) -> list[confluent_kafka.Message]:
    told = [
        Message("usage.events", partition, LogRecord(r.offset, r.timestamp_ms, r.key, r.value))
        for r in records
    ]
    return cast("list[confluent_kafka.Message]", told)


@contextmanager
def opened(folder: Path, rules: Rules = RULES, start: int = 0) -> Iterator[Pass]:
    one = open_pass(folder / "0", LOG, rules, start, Room(7 * DAY_MS // 3, Cache(1 << 20)))
    try:
        yield one
    finally:
        one.table.close()


def said(decided: Decided) -> Compared:
    """A ledger that says something else of each chunk."""
    return Compared(1, 0, [Difference("level", f"up to {decided.last}", "a", "b")])


def test_it_comes_to_what_a_worker_comes_to(tmp_path: Path) -> None:
    log = log_of([*USES, b"{", *USES, usage("late", "3", received_us=T0_US + 2 * DAY_US)])
    worker = Partition().run(log)
    with opened(tmp_path) as one:
        one.take(messages(log))
        assert one.readings == worker.readings
        came = one.came()
    assert came.records == len(log)
    assert came.figures == {
        ("", "dead malformed"): Figure(1, 0),
        ("api_calls", "accepted"): Figure(9, 36),
        ("api_calls", "review late"): Figure(1, 3),
    }


def test_an_interrupted_one_goes_on_and_has_forgotten_nothing(tmp_path: Path) -> None:
    log = log_of([*USES, *USES])
    with opened(tmp_path) as one:
        one.compare = said
        one.take(messages(log[:5]))
    with opened(tmp_path) as one:
        one.compare = said
        assert one.table.applied == 4
        one.take(messages(log))
        came = one.came()
    assert came.records == len(log)
    assert [d.subject for d in came.compared.differences] == ["up to 4", "up to 17"]
    assert (came.compared.equal, came.differing) == (2, 2)
    assert came.figures == {("api_calls", "accepted"): Figure(9, 36)}


def test_a_state_of_another_format_ends_in_words_and_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(table_meta, "FORMAT", table_meta.FORMAT - 1)
        with opened(tmp_path) as one:
            one.take(messages(log_of(USES)))
    with pytest.raises(ConfigurationError) as refused, opened(tmp_path):
        pass

    assert explain(refused.value).lines() == [
        f"error: --state: {tmp_path / '0'} is damaged, or of a release that keeps its state in "
        "another format",
        "  next: begin anew: `--state` another folder, or delete this one",
    ]
    with monkeypatch.context() as earlier:
        earlier.setattr(table_meta, "FORMAT", table_meta.FORMAT - 1)
        with opened(tmp_path) as one:
            assert one.came().records == len(USES)


def test_ids_are_forgotten_when_a_worker_forgets_them(tmp_path: Path) -> None:
    first, again = log_of([USES[1]])[0], log_of([USES[1], USES[1]])[1]
    again = Record(1, first.timestamp_ms + 30 * DAY_MS, again.key, again.value)
    with opened(tmp_path) as one:
        one.take(messages([first]))
        one.take(messages([again]))
        assert one.came().figures[("api_calls", "review beyond_horizon")] == Figure(1, 1)


@pytest.mark.parametrize("place", [0, 3, 8])
def test_a_record_that_workers_never_read_is_not_read_here(tmp_path: Path, place: int) -> None:
    parked: list[tuple[int, str]] = []

    def note(decided: Decided) -> Compared:
        parked.extend((o, f.reason) for o, f in decided.facts if isinstance(f, ParkedFact))
        return Compared()

    with opened(tmp_path, replace(RULES, unread=frozenset({place}))) as one:
        one.compare = note
        one.take(messages(log_of(USES)))
        assert one.table.applied == 8
        assert sum(r.records for r in one.readings.values()) == 16  # eight in level and cell
    assert parked == [(place, "unread")]


def test_what_holds_a_partition_ends_it_there_unless_it_was_skipped(tmp_path: Path) -> None:
    log = log_of([USES[0], USES[1] | {"v": 9}, USES[2]])
    with opened(tmp_path / "held") as one:
        one.take(messages(log))
        assert one.held is not None
        assert (one.held.offset, one.table.applied) == (1, 0)
    skip = Skip(1, fingerprint(log[1].key, log[1].value), "newer", "ann", 7)
    with opened(tmp_path / "skipped", replace(RULES, skips={1: skip})) as one:
        one.take(messages(log))
        assert (one.held, one.table.applied) == (None, 2)


def test_it_begins_where_it_is_told_to(tmp_path: Path) -> None:
    with opened(tmp_path, start=5) as one:
        assert one.table.applied == 4
        one.take(messages(log_of(USES)[5:]))
        (level,) = [r for key, r in one.readings.items() if hasattr(key, "metric")]
    assert isinstance(level, Reading)
    assert (level.records, level.birth_offset) == (4, 5)


def test_tenants_are_told_apart_with_their_shards() -> None:
    log = log_of([USES[0], sharded(usage("a", tenant_id="hot")), usage("b", tenant_id="hotter")])
    batches = iter([messages(log)])
    ((own, read),) = of_tenants(batches, frozenset({b"hot"}))
    assert ([m.offset() for m in own], read) == ([1], 3)
    ((everybody, read),) = of_tenants(iter([messages(log)]), None)
    assert (len(everybody), read) == (3, 3)


def test_offsets_are_partitions_with_inclusive_ends() -> None:
    assert parse_offsets(["3:100-200", "4:7-", "5:-9", "6"]) == {
        3: (100, 200), 4: (7, None), 5: (0, 9), 6: (0, None),
    }  # fmt: skip
    for wrong in (["x"], ["3:7"], ["-1"], ["3", "3:1-2"]):
        with pytest.raises(UsageProblemError, match="--offsets"):
            parse_offsets(wrong)


# -- of a topic that grew --------------------------------------------------------------------------

STAYED = Layout(LOG.topic_id, LOG.topic_id, 2, ((0, 1), (3, 2)), frozenset({0}))
CAME = Layout(LOG.topic_id, "BBBBBBBBBBBBBBBBBBBBBB", 2, ((0, 2),), frozenset({0, 1}))
TENANTS = {home_partition(f"t{n}".encode(), 2): f"t{n}" for n in range(20)}
"""One at home on each of two partitions."""


def test_records_are_judged_by_the_count_that_held_when_they_were_written(tmp_path: Path) -> None:
    log = log_of([usage(f"u{n}", tenant_id=TENANTS[n % 2]) for n in range(4)])
    with opened(tmp_path, replace(RULES, layout=STAYED)) as one:
        one.take(messages(log))
        assert one.held is not None
        assert (one.held.offset, one.table.applied) == (3, 2)
        assert "belongs on another partition" in one.held.reason


class OneRecord:
    """A topic of which one record can be read."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    def read(self, *asked: int) -> Generator[list[confluent_kafka.Message], None, None]:
        self.asked.append(cast("tuple[int, int, int]", asked))
        yield messages([Record(0, 1_234, b"acme", b"")])


@pytest.mark.parametrize(
    ("partition", "low", "start", "from_us"),
    [
        (0, 0, 0, None),  # nothing can have come before it
        (0, 5, 5, 1_234_000),
        (0, 0, 5, 1_234_000),
        (1, 0, 0, 1_234_000),  # its keys were another partition's
        (1, 5, 5, 1_234_000),
    ],
)
def test_before_the_first_record_of_a_new_partition_its_keys_were_elsewhere(
    tmp_path: Path, partition: int, low: int, start: int, from_us: int | None
) -> None:
    topic = OneRecord()
    run = _Run(
        cast("Any", None), cast("Any", topic), cast("Any", SimpleNamespace(tenants=None)),
        tmp_path, [STAYED, CAME], cast("Any", None), cast("Any", None),
    )  # fmt: skip
    assert run._from_us(partition, low, start, 9) == from_us
    assert topic.asked == ([] if from_us is None else [(partition, start, 9)])
