from __future__ import annotations

from uuid import UUID

import msgspec

from streams.adapters import ledger_rows
from streams.core.fact import (
    CanaryFact,
    CellFact,
    CorrectionFact,
    EventFact,
    LevelFact,
    ParkedFact,
    Series,
)

SERIES = Series("acme", "api_calls", 2, 60, 120, 1)
IDENTITY = bytes(range(16))
COLUMNS = {
    "tenant_id": "acme", "metric": "api_calls", "version": 2, "start_us": 60, "end_us": 120,
    "shard": 1,
}  # fmt: skip


def only(text: str) -> dict[str, object]:
    (row,) = msgspec.json.decode(text, type=list[dict[str, object]])
    return row


def test_numbers_beyond_64_bits_travel_as_text() -> None:
    level = LevelFact(SERIES, 3, -(10**20), 2**128 - 1, 7)

    assert only(ledger_rows.levels([level])) == {
        **COLUMNS,
        "birth": 7,
        "count": 3,
        "total": "-100000000000000000000",
        "digest": "340282366920938463463374607431768211455",
    }


def test_events_and_corrections_are_one_list_with_their_kinds() -> None:
    event = EventFact(IDENTITY, 5, SERIES, 61, 4, 9)
    correction = CorrectionFact(IDENTITY, 5, SERIES, 61, -4, "k", None, "why", "ops", 9)

    rows = msgspec.json.decode(ledger_rows.entries([event], [correction]))

    assert [row["kind"] for row in rows] == ["event", "correction"]
    assert [row["delta"] for row in rows] == [4, -4]
    assert rows[0]["event_id"] == str(UUID(bytes=IDENTITY))
    assert rows[1]["target"] is None


def test_an_item_that_could_not_be_read_has_coordinates_only() -> None:
    item = ParkedFact(
        "dead", "malformed", 9, None, None, None, None, None, None, None, None, None, "{}", b"\xff"
    )

    row = only(ledger_rows.parked([item]))

    assert row["event_id"] is row["content"] is row["units"] is None
    assert row["record"] == "/w=="
    assert "start_us" not in row


def test_text_that_the_database_cannot_hold_is_made_visible() -> None:
    canary = CanaryFact("a\0b", 3, "t\ud800", 60, 9)

    assert only(ledger_rows.canaries([canary])) == {
        "source": "a\N{REPLACEMENT CHARACTER}b",
        "partition": 3,
        "token": "t?",
        "received_us": 60,
        "record_offset": 9,
    }


def test_a_cell_carries_its_birth() -> None:
    assert only(ledger_rows.cells([CellFact("s", 60, "accepted", 2, 2**127, 7)])) == {
        "source": "s",
        "minute_us": 60,
        "verdict_class": "accepted",
        "count": 2,
        "digest": str(2**127),
        "birth": 7,
    }
