"""Figures → tiles: what is unknown says so, and what is near its bound is seen."""

from __future__ import annotations

from typing import Any

import pytest

from streams.console.history import lag_of
from streams.console.overview import Tile, page_of, tiles
from streams.console.reading import Unread, attempt, beside
from streams.console.slot import Slot
from streams.console.words import age, apart, count, instant, lasted, size
from streams.console.workers import WorkerFigures, addresses_of, read_workers
from streams.core.instant import HOUR_US, SECOND_US

AWAY = Unread("the ledger: away", "start it")


def figures(**waiting: Any) -> dict[str, Any]:
    return {
        "meter_events": {"pending": {"count": 2, "units": "7"}},
        "waiting": {
            "oldest_request_age_s": None,
            "oldest_doubt_age_s": None,
            "entries_waiting": 1,
            "entries_unmapped": 2,
            **waiting,
        },
        "parked": [
            {"kind": "dead", "count": 2, "oldest_age_s": 60.0},
            {"kind": "dead", "count": 1, "oldest_age_s": 7200.0},
        ],
    }


def parts(**told: Any) -> dict[str, Any]:
    recent: dict[str, Any] = {
        "attempts": 300,
        "published": 600,
        "retries": 0,
        "already_there": 4,
        "span_s": 300.0,
        "window": None,
        "sealed": [],
    }
    slot = Slot("s", there=True, active=True, state="reserved", retained_bytes=5)
    return {"recent": recent, "workers": [], "slot": slot, **told}


def tile(name: str, told: dict[str, Any], known: dict[str, Any] | None = None) -> Tile:
    [found] = [t for t in tiles(known or figures(), told) if t.name == name]
    return found


@pytest.mark.parametrize(
    ("doubt_h", "tone"), [(None, "calm"), (1, "warning"), (19.9, "warning"), (20, "critical")]
)
def test_a_doubt_near_the_fence_is_critical(doubt_h: float | None, tone: str) -> None:
    doubt_s = None if doubt_h is None else doubt_h * 3600
    found = tile("oldest unsettled", parts(), figures(oldest_doubt_age_s=doubt_s))
    assert found.tone == tone
    assert doubt_h is None or "of 23 h" in found.about


def test_counts_are_of_what_they_say() -> None:
    assert tile("pending requests", parts()).value == "2"
    assert tile("pending requests", parts()).about == "7 units; 3 entries wait"
    assert tile("dead letters", parts()).value == "3"
    assert tile("dead letters", parts()).about == "oldest 2.0 h"
    assert tile("review queue", parts()).tone == "calm"
    assert tile("published/s", parts()).value == "2.0"


@pytest.mark.parametrize(
    ("units", "settled", "complete", "value", "tone"),
    [
        ("10", "10", 2, "100 %", "calm"),
        ("1000", "999", 1, "99 %", "warning"),
        # A tenant's too much never hides another's too little.
        ("10", "10", 1, "99 %", "warning"),
        ("0", "0", 2, "100 %", "calm"),
        ("-5", "3", 1, "0 %", "warning"),
    ],
)
def test_only_a_window_that_is_all_at_stripe_is_complete(
    units: str, settled: str, complete: int, value: str, tone: str
) -> None:
    window = {"units": units, "settled": settled, "complete": complete, "windows": 2}
    found = tile("last closed window", parts(recent={**parts()["recent"], "window": window}))
    assert (found.value, found.tone) == (value, tone)


def test_a_source_that_was_never_audited_proves_nothing() -> None:
    sealed = [{"source": "a", "minute_us": HOUR_US}, {"source": "b", "minute_us": None}]
    found = tile("proven up to", parts(recent={**parts()["recent"], "sealed": sealed}))
    assert found.value == "never"


def test_duplicates_stand_by_the_layer_that_dropped_them() -> None:
    workers = [
        WorkerFigures("http://a", verdicts={"duplicate": 3, "accepted": 9}),
        WorkerFigures("http://b", silent="refused"),
    ]
    found = tile("duplicates dropped", parts(workers=workers))
    assert found.about == "stream 3 · Stripe 4 (5 min) · 1 of 2 workers silent"
    assert found.tone == "warning"
    assert tile("duplicates dropped", parts()).tone == "unread"


@pytest.mark.parametrize(
    ("slot", "value", "tone"),
    [
        (Slot("s", there=False), "LOST", "critical"),
        (Slot("s", there=True, active=True, state="lost"), "LOST", "critical"),
        (Slot("s", True, True, "reserved", 76, 100), "76 B", "critical"),
        (Slot("s", True, True, "reserved", 75, 100), "75 B", "calm"),
        (Slot("s", True, True, "reserved", 2048, None), "2.0 KiB", "calm"),
        (Slot("s", True, False, "reserved", 5, 100), "5 B", "warning"),
    ],
)
def test_a_slot_that_is_lost_or_nearly_full_is_critical(slot: Slot, value: str, tone: str) -> None:
    found = tile("slot WAL", parts(slot=slot))
    assert (found.value, found.tone) == (value, tone)


def test_what_cannot_be_read_is_never_calm() -> None:
    told = {"recent": AWAY, "workers": AWAY, "slot": AWAY}
    unread = [t for t in tiles(figures(), told) if t.value == "?"]
    assert [t.name for t in unread] == [
        "published/s", "retries/s", "last closed window", "proven up to", "duplicates dropped",
        "slot WAL",
    ]  # fmt: skip
    assert {t.tone for t in unread} == {"unread"}


def test_a_broken_part_spoils_no_other() -> None:
    def broken() -> int:
        raise OSError("gone")

    read = beside(one=lambda: 1, two=broken)
    assert read["one"] == 1
    assert isinstance(read["two"], Unread)
    assert attempt(lambda: "fine") == "fine"


def test_lag_counts_what_the_ledger_lacks() -> None:
    positions = [{"partition": 1, "position": 4}, {"partition": 2, "position": 9}]
    assert lag_of({2: 10, 0: 3, 1: 8}, positions) == {
        "partitions": [0, 1, 2],
        "records": [3, 3, 0],
    }


def test_workers_are_those_given_and_those_that_a_sandbox_lists() -> None:
    facts = {"pids": {"workers": [{"metrics_url": "http://a"}, {"metrics_url": None}]}}
    assert addresses_of(facts, ["https://b", "file:///etc/passwd"]) == ["https://b", "http://a"]
    assert addresses_of(facts, ["http://a/"]) == ["http://a"], "each counts once"
    [silent] = read_workers(["http://127.0.0.1:1"])
    assert silent.silent
    assert silent.duplicates == 0


def test_figures_are_written_for_people() -> None:
    assert instant(0) == "1970-01-01 00:00:00Z"
    assert apart(0, 30 * HOUR_US) == "30.0 h later"
    assert apart(9 * SECOND_US, 0) == "9 s earlier"
    assert lasted(0, 120_000) == "0.12 s"
    assert lasted(0, 31 * SECOND_US) == "31 s"
    assert lasted(0, None) == "–"
    assert {instant(None), age(None), apart(None, 1), size(None), count(None)} == {"–"}
    assert size(5 * 1024**3) == "5.0 GiB"
    assert size(16 * 1024**2) == "16 MiB"
    assert size(5 * 1024**5) == "5120.0 TiB"
    assert count("12345678901234567890123") == "12,345,678,901,234,567,890,123"
    assert count("1.5") == "1.5"
    assert count(1234.5) == "1,234"


@pytest.mark.parametrize(
    ("command", "page"),
    [
        ("tailrace dead redrive --cause no_meter", "/dead"),
        ("tailrace deadlines", None),
        ("tailrace audit", "/log?action=audit"),
        ("tailrace doctor meter-formula", None),
    ],
)
def test_a_remark_leads_to_the_page_of_its_command_and_to_no_other(
    command: str, page: str | None
) -> None:
    assert page_of(command) == page
