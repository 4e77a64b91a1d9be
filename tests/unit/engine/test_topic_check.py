"""Broker, settings and ledger must agree on how many partitions there are, before state is used."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from streams.engine.before import LedgerSilent
from streams.engine.errors import PartitionCountChanged
from streams.engine.layout import Layout, LayoutOf, ungrown
from streams.engine.log_guard import TopicLife
from streams.engine.recovery_needs import Recovery
from streams.engine.table import PartitionTable
from streams.engine.topic_check import follow_count, layout_of, life_of


def needs(*, broker: int = 8, settings: int = 8, layout: LayoutOf = ungrown) -> Recovery:
    life = TopicLife("life-1", broker)
    inquiry = SimpleNamespace(life=lambda _topic: life)
    made = SimpleNamespace(topic="usage", partitions=settings, inquiry=inquiry, layout=layout)
    return cast("Recovery", made)


def known(partitions: int) -> LayoutOf:
    return lambda life_id, _partitions, partition: ungrown(life_id, partitions, partition)


def test_where_all_agree_the_partition_has_its_layout() -> None:
    asked: list[tuple[str, int, int]] = []
    grown = Layout("life-1", "grown", 8, ((0, 8),), frozenset({1, 5}))

    def layout(*question: Any) -> Layout:
        asked.append(question)
        return grown

    assert layout_of(needs(layout=layout), 5) is grown
    assert asked == [("life-1", 8, 5)]
    assert life_of(needs(), "usage") == TopicLife("life-1", 8)


@pytest.mark.parametrize(("broker", "settings"), [(8, 4), (4, 8)])
def test_a_worker_that_is_set_up_for_another_count_is_told_what_to_set(
    broker: int, settings: int
) -> None:
    for ask in (lambda n: life_of(n, "usage.packed"), lambda n: layout_of(n, 0)):
        with pytest.raises(
            PartitionCountChanged, match=f"{broker} partitions, {settings} are configured"
        ) as refused:
            ask(needs(broker=broker, settings=settings))
        assert f"set TAILRACE_PARTITIONS={broker} and restart" in str(refused.value)


@pytest.mark.parametrize("count", [4, 16])
def test_a_count_that_nobody_made_known_is_refused_with_the_command(count: int) -> None:
    with pytest.raises(PartitionCountChanged, match=f"the ledger knows of {count}") as refused:
        layout_of(needs(layout=known(count)), 0)
    assert "`tailrace topics grow --partitions 8` makes it known" in str(refused.value)


def test_a_silent_ledger_is_no_answer() -> None:
    with pytest.raises(LedgerSilent, match="whether topic usage was grown"):
        layout_of(needs(layout=lambda *_: None), 0)


# -- a table that was kept (of 12 partitions) ------------------------------------------------------


def test_a_table_from_before_a_growth_takes_the_count_of_now_and_nothing_else_changes(
    table: PartitionTable,
) -> None:
    meta = table.meta
    layout = Layout(meta.topic_id, meta.topic_id, 48, ((0, 6), (4, 12), (9, 48)))
    assert follow_count(table, layout) is table
    assert table.meta == replace(meta, partitions=48)
    assert follow_count(table, layout).meta.partitions == 48


@pytest.mark.parametrize("counts", [((0, 4), (3, 24)), ((0, 24),), ((0, 6),)])
def test_a_table_of_a_count_that_never_was_is_refused_and_left_as_it_is(
    table: PartitionTable, counts: tuple[tuple[int, int], ...]
) -> None:
    meta, now = table.meta, counts[-1][1]
    layout = Layout(meta.topic_id, meta.topic_id, now, counts)
    with pytest.raises(
        PartitionCountChanged, match=f"made with 12 partitions, the topic has {now}"
    ):
        follow_count(table, layout)
    assert table.meta == meta
