import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.meter_event import (
    VALUE_ABS_MAX,
    Cell,
    MeterEvent,
    Origin,
    UnsendableMeterEventError,
    freeze_event,
    freeze_proven,
    freeze_window,
)

HOUR_US = 3_600_000_000
START_US = 1_795_975_200_000_000
ORIGIN = Origin("acct_1", livemode=False, ledger_id="ledger-a")
CELL = Cell("cus_1", "api_calls", START_US, START_US + HOUR_US)


def frozen(value: int = 5, now_us: int = START_US + 10_000_000) -> MeterEvent:
    return freeze_window(ORIGIN, CELL, value, 7, 1, now_us)


def test_payload_is_plain_text() -> None:
    assert frozen(-12).payload() == {"stripe_customer_id": "cus_1", "value": "-12"}
    assert frozen(VALUE_ABS_MAX).payload()["value"] == "999999999999999"


def test_identifier_is_pinned_for_ever() -> None:
    assert frozen().identifier == "m1:z5w5q3rgm5y5xi5xejxryabthznnxeumtsvqrlqjx6m5it3kxoda"


def test_identifier_is_short_opaque_and_without_the_value() -> None:
    event = frozen()
    assert re.fullmatch(r"m1:[a-z2-7]{52}", event.identifier)
    assert event.identifier == frozen(6).identifier
    assert event.payload_hash != frozen(6).payload_hash


def test_idempotency_key_contains_the_identifier_and_moves_with_its_generation() -> None:
    event = frozen()
    assert event.idempotency_key(0) == f"{event.identifier}.g0"
    assert event.idempotency_key(3) == f"{event.identifier}.g3"
    assert len(event.idempotency_key(10**6)) <= 255


@pytest.mark.parametrize(
    ("origin", "cell", "first", "generation"),
    [
        (dataclasses.replace(ORIGIN, account="acct_2"), CELL, 7, 1),
        (dataclasses.replace(ORIGIN, livemode=True), CELL, 7, 1),
        (dataclasses.replace(ORIGIN, ledger_id="ledger-b"), CELL, 7, 1),
        (ORIGIN, dataclasses.replace(CELL, customer="cus_2"), 7, 1),
        (ORIGIN, dataclasses.replace(CELL, event_name="storage"), 7, 1),
        (ORIGIN, dataclasses.replace(CELL, window_start_us=START_US - HOUR_US), 7, 1),
        (ORIGIN, dataclasses.replace(CELL, window_end_us=START_US + 2 * HOUR_US), 7, 1),
        (ORIGIN, CELL, 8, 1),
        (ORIGIN, CELL, 7, 2),
    ],
)
def test_everything_that_names_a_meter_event_is_in_its_identifier(
    origin: Origin, cell: Cell, first: int, generation: int
) -> None:
    other = freeze_window(origin, cell, 5, first, generation, START_US + 10_000_000)
    assert other.identifier != frozen().identifier


def test_parts_of_the_identifier_cannot_flow_into_each_other() -> None:
    left = Origin("ab", livemode=False, ledger_id="c")
    right = Origin("a", livemode=False, ledger_id="bc")
    assert (
        freeze_window(left, CELL, 1, 1, 1, START_US).identifier
        != freeze_window(right, CELL, 1, 1, 1, START_US).identifier
    )


def test_an_entry_and_an_event_of_the_same_name_differ() -> None:
    event = freeze_event(ORIGIN, CELL, 5, "7", 1, START_US)
    assert event.identifier != frozen().identifier


@pytest.mark.parametrize(
    ("now_us", "timestamp_s"),
    [
        (START_US - HOUR_US, START_US // 1_000_000 + 1),
        (START_US, START_US // 1_000_000 + 1),
        (START_US + 90_999_999, START_US // 1_000_000 + 90),
        (START_US + HOUR_US, START_US // 1_000_000 + 3_599),
        (START_US + 40 * HOUR_US, START_US // 1_000_000 + 3_599),
    ],
)
def test_a_window_is_dated_when_it_is_frozen_but_inside_itself(
    now_us: int, timestamp_s: int
) -> None:
    assert frozen(now_us=now_us).timestamp_s == timestamp_s


def test_an_event_is_dated_in_the_second_it_happened() -> None:
    assert freeze_event(ORIGIN, CELL, 1, "e", 1, START_US + 1_999_999).timestamp_s == (
        START_US // 1_000_000 + 1
    )


@given(
    start_s=st.integers(0, 10**10),
    length_s=st.integers(60, 86_400),
    now_us=st.integers(0, 2 * 10**16),
)
def test_a_date_is_always_a_second_inside_the_window(
    start_s: int, length_s: int, now_us: int
) -> None:
    cell = Cell("cus_1", "api_calls", start_s * 10**6, (start_s + length_s) * 10**6)
    event = freeze_window(ORIGIN, cell, 1, 1, 1, now_us)
    assert start_s < event.timestamp_s < start_s + length_s


@pytest.mark.parametrize(
    ("cell", "value", "generation", "field"),
    [
        (CELL, 0, 1, "value"),
        (CELL, VALUE_ABS_MAX + 1, 1, "value"),
        (CELL, -VALUE_ABS_MAX - 1, 1, "value"),
        (CELL, 1, 0, "generation"),
        (dataclasses.replace(CELL, customer=""), 1, 1, "customer"),
        (dataclasses.replace(CELL, customer="c" * 256), 1, 1, "customer"),
        (dataclasses.replace(CELL, event_name=""), 1, 1, "event_name"),
        (dataclasses.replace(CELL, event_name="e" * 101), 1, 1, "event_name"),
        (dataclasses.replace(CELL, window_end_us=START_US + 2_999_999), 1, 1, "window"),
    ],
)
def test_what_stripe_could_not_take_is_refused_by_name(
    cell: Cell, value: int, generation: int, field: str
) -> None:
    with pytest.raises(UnsendableMeterEventError) as caught:
        freeze_window(ORIGIN, cell, value, 1, generation, START_US)
    assert caught.value.field == field
    assert str(caught.value) == f"{field}: {caught.value.rule}; {caught.value.remedy}"


@pytest.mark.parametrize(
    "change",
    [
        {"value": 6},
        {"customer": "cus_2"},
        {"event_name": "storage"},
        {"timestamp_s": 1},
        {"identifier": "m1:x"},
    ],
)
def test_a_changed_row_is_no_longer_intact(change: dict[str, int | str]) -> None:
    assert frozen().intact()
    assert not dataclasses.replace(frozen(), **change).intact()  # type: ignore[arg-type]  # a table


def test_a_proven_amount_is_named_by_its_proof_and_dated_as_told() -> None:
    event = freeze_proven(ORIGIN, CELL, -5, "net 12", START_US // 1_000_000 + 7)
    assert (event.value, event.timestamp_s, event.generation) == (-5, START_US // 1_000_000 + 7, 1)
    assert event.identifier == freeze_proven(ORIGIN, CELL, 9, "net 12", 0).identifier
    assert event.identifier != freeze_proven(ORIGIN, CELL, -5, "net 13", 0).identifier
    assert event.intact()
