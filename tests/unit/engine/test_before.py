"""What is remembered of earlier logs, and what is missing: of those that ended and that live on."""

from collections.abc import Callable

import pytest

from streams.engine.before import Before, Earlier, LedgerSilent
from streams.engine.errors import EarlierBehind
from streams.engine.log import LogId
from tests.unit.engine.build import packed, settlement

ENDED, LIVING = LogId("usage", "ended", 1), LogId("usage", "living", 1)
LAST = 9
SINCE_MS = 1_000
"""Records of the tests are from after it, unless they say otherwise."""


def told(log: LogId, last: int = LAST, held: int = LAST) -> dict[str, Earlier]:
    return {log.topic_id: Earlier(log.partition, last, held, log is LIVING)}


def read(before: Before, log: LogId, *spans: tuple[int, int], at_ms: int = 5_000) -> list[bool]:
    """Of each packed record: whether it is remembered."""
    records = [packed(log, settlement(first, last, at_ms=at_ms)) for first, last in spans]
    return [before.remember(record, "present") is not None for record in records]


# -- what is remembered ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "last", "held", "span", "remembered"),
    [
        (ENDED, 9, 9, (8, 9), True),
        (ENDED, 9, 9, (9, 10), False),  # the ledger lacks a part: that counts when it comes again
        (ENDED, 4, 9, (8, 9), True),
        (LIVING, 9, 9, (8, 9), True),
        (LIVING, 9, 9, (9, 12), True),  # straddles: what is too much is of keys that stayed
        (LIVING, 9, 9, (10, 12), False),
        (LIVING, 9, -1, (0, 9), True),  # it is counted, or will be, whatever the ledger holds yet
        (LIVING, -1, 9, (0, 0), False),
    ],
)
def test_a_record_is_remembered_up_to_where_it_has_to_be(
    log: LogId, last: int, held: int, span: tuple[int, int], *, remembered: bool
) -> None:
    assert read(Before(told(log, last, held)), log, span) == [remembered]


def test_only_ids_are_remembered_and_nothing_that_counts() -> None:
    record = packed(LIVING, settlement(0, 3, pinned=[(b"p" * 16, b"v")]), confirmed=2)
    kept = Before(told(LIVING)).remember(record, "present")
    assert kept is not None
    assert (kept.topic_id, kept.first, kept.last, kept.confirmed) == ("present", -1, -1, -1)
    assert (kept.levels, kept.unsent, kept.anchor) == ([], [], b"")
    assert (kept.seen(), kept.pinned()) == (record.seen(), record.pinned())
    assert (kept.floor_us, kept.received_max_us) == (record.floor_us, record.received_max_us)


def test_nothing_of_another_partition_or_of_an_unknown_log_is_remembered() -> None:
    before = Before(told(LIVING))
    assert read(before, LogId("usage", "living", 2), (0, 3)) == [False]
    assert read(before, LogId("usage", "foreign", 1), (0, 3)) == [False]
    assert read(Before(None), LIVING, (0, 3)) == [False]


# -- what is missing -------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [ENDED, LIVING], ids=["ended", "living"])
def test_nothing_is_missing_once_all_of_it_is_read(log: LogId) -> None:
    before = Before(told(log))
    read(before, log, (4, LAST), (0, 3))
    assert before.missing(SINCE_MS) is None


def test_a_straddling_record_reaches_far_enough() -> None:
    before = Before(told(LIVING))
    read(before, LIVING, (0, 5), (6, LAST + 7))
    assert before.missing(SINCE_MS) is None


LACKS: list[tuple[tuple[tuple[int, int], ...], str]] = [
    ((), "offsets 0 to 9 of partition 1 of the log before"),
    (((0, 8),), "offsets 9 to 9 of partition 1"),
    (((0, 3), (5, 9)), "what lies before offset 5 of partition 1"),
    (((2, 9),), "what lies before offset 2 of partition 1"),
]


@pytest.mark.parametrize(("spans", "said"), LACKS)
def test_what_is_missing_of_a_log_that_ended_is_named(
    spans: tuple[tuple[int, int], ...], said: str
) -> None:
    before = Before(told(ENDED))
    read(before, ENDED, *spans)
    assert said in str(before.missing(SINCE_MS))


@pytest.mark.parametrize(("spans", "said"), LACKS)
def test_what_a_log_lacks_that_lives_on_is_for_its_own_worker_to_write(
    spans: tuple[tuple[int, int], ...], said: str
) -> None:
    before = Before(told(LIVING))
    read(before, LIVING, *spans)
    with pytest.raises(EarlierBehind, match="goes on by itself") as behind:
        before.missing(SINCE_MS)
    assert f"lacks {said}" in str(behind.value)
    assert "the packed log was cut: delete that partition's state" in str(behind.value)


def test_what_lies_before_the_time_of_memory_is_not_missed() -> None:
    before = Before(told(LIVING))
    read(before, LIVING, (6, LAST), at_ms=SINCE_MS)
    assert before.missing(SINCE_MS) is None
    with pytest.raises(EarlierBehind, match="what lies before offset 6"):
        before.missing(SINCE_MS - 1)


def test_a_log_of_which_nothing_is_to_be_remembered_is_not_missed() -> None:
    assert Before(told(LIVING, last=-1)).missing(SINCE_MS) is None
    assert Before({}).missing(SINCE_MS) is None


def test_each_of_several_logs_is_missed() -> None:
    both = told(LIVING) | told(ENDED)
    before = Before(both)
    read(before, LIVING, (0, LAST))
    assert "topic id ended" in str(before.missing(SINCE_MS))
    read(before, ENDED, (0, LAST))
    assert before.missing(SINCE_MS) is None


@pytest.mark.parametrize(
    "ask", [lambda before: before.missing(SINCE_MS), lambda before: before.continues("living")]
)
def test_a_silent_ledger_says_nothing_of_it(ask: Callable[[Before], object]) -> None:
    with pytest.raises(LedgerSilent):
        ask(Before(None))


# -- where it lies ---------------------------------------------------------------------------------


def test_it_lies_in_the_partitions_of_the_logs_that_hold_something() -> None:
    before = Before(
        {
            "c": Earlier(5, 3, 3, lives=True),
            "b": Earlier(1, 3, 3, lives=True),
            "a": Earlier(1, 7, 7),
            "nothing": Earlier(2, -1, -1),
        }
    )
    assert before.elsewhere(5) == [1]
    assert before.elsewhere(1) == [5]
    assert before.elsewhere(13) == [1, 5]
    assert Before(None).elsewhere(5) == []


def test_a_partition_of_the_packed_log_is_read_until_all_of_it_is_known() -> None:
    before = Before(told(LIVING) | {"earlier": Earlier(1, 4, 4), "other": Earlier(2, 6, 6)})
    assert not before.covers(1)
    read(before, LIVING, (0, LAST + 3))
    assert not before.covers(1), "the life before is still to come"
    read(before, LogId("usage", "earlier", 1), (2, 4))
    assert not before.covers(1), "what lies before it may still come"
    read(before, LogId("usage", "earlier", 1), (0, 1))
    assert before.covers(1)
    assert not before.covers(2)
    assert before.covers(7), "nothing of it is wanted"


def test_each_reading_is_judged_by_what_it_brought_itself() -> None:
    """A table that is begun anew has lost what an earlier reading brought."""
    before = Before(told(LIVING))
    read(before, LIVING, (0, LAST))
    assert before.covers(1)
    before.begin_anew()
    assert not before.covers(1)
    with pytest.raises(EarlierBehind):
        before.missing(SINCE_MS)


# -- a table that was kept -------------------------------------------------------------------------


def test_a_table_that_was_made_without_asking_for_a_log_has_forgotten_it() -> None:
    before = Before(told(LIVING) | told(ENDED) | {"nothing": Earlier(1, -1, -1)})
    assert before.forgotten(("living",)) == ["ended"]
    assert before.forgotten(before.continued) == []
    assert before.continued == ("living", "ended", "nothing")
    assert Before(None).forgotten(()) == []
