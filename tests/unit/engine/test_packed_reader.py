"""The packed log as one partition reads it: its own part, and what others hold for it."""

from collections.abc import Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streams.core.decided import SourceRecord
from streams.engine import packed_reader
from streams.engine.before import Before, Earlier, LedgerSilent
from streams.engine.errors import ForeignPackedRecord
from streams.engine.log import LogId, Record
from streams.engine.packed import PackedRecord, encode
from streams.engine.packed_reader import PackedReader
from tests.support.consumed import Message
from tests.unit.engine.build import packed, settlement

CHILD, PARENT = LogId("usage", "grown", 5), LogId("usage", "root", 1)
LAST = 9


@dataclass
class Reader:
    """The packed log's partitions, and what was read of them."""

    logs: dict[int, list[PackedRecord]]
    low: int = 0
    taken: list[tuple[int, int]] = field(default_factory=list)
    """(partition, offset) in the order of reading."""
    closed: int = 0

    def marks(self, _topic: str, partition: int) -> tuple[int, int]:
        return self.low, len(self.logs.get(partition, []))

    def read(
        self, topic: str, partition: int, start: int, end: int, _cancelled: object
    ) -> Generator[list[Message], None, None]:
        try:
            for offset in range(start, end):
                self.taken.append((partition, offset))
                value = encode(self.logs[partition][offset])
                record = cast("SourceRecord", Record(offset, 0, None, value))
                yield [Message(topic, partition, record)]
        finally:
            self.closed += 1


def reader_of(reader: Reader, before: Before, log: LogId = CHILD) -> PackedReader:
    rules = SimpleNamespace(from_version_1=lambda value: value)
    needs = SimpleNamespace(packed_topic="admit-log", rules=rules)
    return PackedReader(cast("Any", reader), cast("Any", needs), log, lambda: False, before)


def told(last: int = LAST) -> Before:
    return Before({PARENT.topic_id: Earlier(PARENT.partition, last, last, lives=True)})


def records(log: LogId, *spans: tuple[int, int]) -> list[PackedRecord]:
    return [packed(log, settlement(*span)) for span in spans]


@pytest.fixture
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_reader, "_GROUP_RECORDS", 1)


def test_what_another_partition_holds_for_it_is_read_as_memory_alone() -> None:
    there = records(PARENT, (0, 4), (5, LAST))
    reader = Reader({1: there, 5: []})
    [group] = reader_of(reader, told()).elsewhere()
    assert [(each.topic_id, each.last, each.levels, each.unsent) for each in group] == [
        ("grown", -1, [], [])
    ] * 2
    assert [each.ids for each in group] == [each.ids for each in there]


@pytest.mark.usefixtures("_one_by_one")
def test_it_is_read_no_further_than_it_is_wanted() -> None:
    reader = Reader({1: records(PARENT, (0, 4), (5, LAST), (10, 14), (15, 19))})
    groups = list(reader_of(reader, told()).elsewhere())
    assert len(groups) == 2
    assert reader.taken == [(1, 0), (1, 1)]
    assert reader.closed == 1, "the consumer is free for the next"


@pytest.mark.usefixtures("_one_by_one")
def test_what_may_still_come_is_read_to_the_end() -> None:
    """A second worker's records interleave: what lies before the first may stand behind it."""
    reader = Reader({1: records(PARENT, (5, LAST), (10, 14), (0, 4))})
    assert len(list(reader_of(reader, told()).elsewhere())) == 2
    assert len(reader.taken) == 3


@pytest.mark.usefixtures("_one_by_one")
def test_a_second_reading_for_an_emptied_table_brings_all_of_it_again() -> None:
    before = told()
    reading = reader_of(Reader({1: records(PARENT, (0, 2), (3, 5), (6, LAST))}), before)
    first = [each.ids for [each] in reading.elsewhere()]
    before.begin_anew()
    assert [each.ids for [each] in reading.elsewhere()] == first
    assert len(first) == 3


def test_whatever_else_lies_in_the_other_partition_is_passed_over() -> None:
    others = [LogId("usage", "foreign", 1), LogId("usage", "root", 3), LogId("usage", "grown", 1)]
    reader = Reader({1: [r for log in others for r in records(log, (0, 3))]})
    assert list(reader_of(reader, told()).elsewhere()) == []


@pytest.mark.parametrize("before", [told(-1), Before({}), Before(None)])
def test_without_anything_to_remember_no_other_partition_is_read(before: Before) -> None:
    reader = Reader({1: records(PARENT, (0, 3))})
    assert list(reader_of(reader, before).elsewhere()) == []
    assert reader.taken == []


def test_its_own_part_begins_where_retention_left_it() -> None:
    own = records(CHILD, (0, 1), (2, 3))
    reader = Reader({5: own}, low=1)
    reading = reader_of(reader, told())
    assert reading.marks() == (1, 2)
    [(group, after)] = reading.groups(*reading.marks())
    assert (group, after) == (own[1:], 2)


def test_in_its_own_part_only_what_it_continues_is_read() -> None:
    """The log before, in its own partition: of an earlier life. Anything else holds it."""
    earlier = LogId("usage", "earlier", 5)
    before = Before({"earlier": Earlier(5, 3, 3), "root": Earlier(1, 3, 3, lives=True)})
    reader = Reader({5: [*records(earlier, (0, 3)), *records(CHILD, (0, 1))]})
    [(group, _)] = reader_of(reader, before).groups(0, 2)
    assert [(each.topic_id, each.last) for each in group] == [("grown", -1), ("grown", 1)]
    for foreign in (LogId("usage", "foreign", 5), LogId("usage", "root", 1)):
        reading = reader_of(Reader({5: records(foreign, (0, 3))}), before)
        with pytest.raises(ForeignPackedRecord, match=f"topic id {foreign.topic_id}, partition"):
            list(reading.groups(0, 1))


def test_a_silent_ledger_must_say_first_whether_a_record_is_of_a_log_before() -> None:
    reading = reader_of(Reader({5: records(LogId("usage", "earlier", 5), (0, 3))}), Before(None))
    with pytest.raises(LedgerSilent):
        list(reading.groups(0, 1))
