"""Chunks of fetched records: bounds, own redelivery, and a memory that does not depend on them."""

from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Message
from hypothesis import HealthCheck, given
from hypothesis import settings as configured
from hypothesis import strategies as st

from streams.engine.cut import cut
from streams.engine.log import Record
from streams.engine.table import PartitionTable
from tests.unit.engine.build import id_of, number, settle, settlement
from tests.unit.engine.conftest import WIDTH_MS, Tables


@dataclass(frozen=True)
class Fetched:
    """What librdkafka gives, as far as it is asked."""

    number: int
    time_ms: int = 5_000
    body: bytes = b"body"

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 2, self.time_ms

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return self.body


def take(
    table: PartitionTable, fetched: list[Fetched], records_max: int = 100, bytes_max: int = 10_000
) -> tuple[list[Record], int]:
    return cut(cast("list[Message]", fetched), table, records_max=records_max, bytes_max=bytes_max)


def test_what_is_applied_already_is_left_out_but_used_up(table: PartitionTable) -> None:
    settle(table, settlement(0, 4))
    records, used = take(table, [Fetched(n) for n in range(2, 9)])
    assert [r.offset for r in records] == [5, 6, 7, 8]
    assert used == 7
    assert take(table, [Fetched(1)]) == ([], 1)


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "expected"), [(3, 10_000, 3), (100, 20, 2), (100, 1, 1)]
)
def test_a_chunk_is_bounded_by_records_and_bytes_but_never_empty(
    table: PartitionTable, records_max: int, bytes_max: int, expected: int
) -> None:
    records, used = take(table, [Fetched(n) for n in range(9)], records_max, bytes_max)
    assert (len(records), used) == (expected, expected)


def test_a_chunk_ends_where_a_generation_begins(table: PartitionTable) -> None:
    fetched = [Fetched(0, 900), Fetched(1, 999), Fetched(2, 1_000), Fetched(3, 500)]
    assert take(table, fetched)[1] == 2
    settle(table, settlement(0, 1, at_ms=999))
    assert [r.offset for r in take(table, fetched[2:])[0]] == [2, 3]


Logs = st.lists(st.tuples(st.integers(0, 12), st.integers(-300, 900)), min_size=1, max_size=30)


@configured(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(Logs, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_verdicts_do_not_depend_on_how_the_log_is_cut(
    tables: Tables, steps: list[tuple[int, int]], sizes: list[int]
) -> None:
    """Fresh, seen before, or below the floor: the same for each record, one by one or in chunks."""
    fetched: list[Fetched] = []
    names: list[str] = []
    now_ms = WIDTH_MS
    for n, (name, later_ms) in enumerate(steps):
        now_ms = max(0, now_ms + later_ms)
        fetched.append(Fetched(n, now_ms))
        names.append(f"e{name}")
    received = {name: fetched[names.index(name)].time_ms * 1_000 for name in names}

    def verdicts(table: PartitionTable, sizes: list[int]) -> list[str]:
        found: list[str] = []
        turn = 0
        while table.applied < len(fetched) - 1:
            rest = fetched[table.applied + 1 :]
            records, _ = take(table, rest, sizes[turn % len(sizes)])
            turn += 1
            table.enter(max(r.timestamp_ms for r in records))
            fresh: dict[bytes, bytes] = {}
            received_us = -1
            for record in records:
                name = names[record.offset]
                if received[name] <= table.floor_us:
                    found.append("beyond")
                elif table.seen([id_of(name)])[0] is not None or id_of(name) in fresh:
                    found.append("seen")
                else:
                    found.append("fresh")
                    fresh[id_of(name)] = number(record.offset)
                    received_us = max(received_us, received[name])
            table.settle(
                settlement(
                    table.applied + 1,
                    records[-1].offset,
                    at_ms=max(r.timestamp_ms for r in records),
                    seen=list(fresh.items()),
                    received_max_us=received_us,
                    unsent=[],
                )
            )
        return found

    test_verdicts_do_not_depend_on_how_the_log_is_cut.count += 2  # type: ignore[attr-defined]  # directories
    count = test_verdicts_do_not_depend_on_how_the_log_is_cut.count  # type: ignore[attr-defined]  # as above
    one, many = tables.open(f"one{count}"), tables.open(f"many{count}")
    assert verdicts(one, [1]) == verdicts(many, sizes)
    one.close()
    many.close()


test_verdicts_do_not_depend_on_how_the_log_is_cut.count = 0  # type: ignore[attr-defined]  # as above
