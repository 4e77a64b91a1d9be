"""Every finding says what it is about, where to look, and what clearing it does."""

from typing import Any

import pytest

from streams.core.finding import told

SERIES: dict[str, Any] = {
    "tenant_id": "a cme", "metric": "api_calls", "version": 1, "shard": 0, "log_id": "l",
    "window_start": "2026-11-30T11:00:00+00:00",
    "told": {"partition": 3, "birth": 7, "count": 3, "total": 31, "digest": "1"},
    "recorded": {"partition": 3, "birth": 7, "count": 3, "total": 30, "digest": "2"},
}  # fmt: skip


def test_a_series_names_its_window_and_both_readings() -> None:
    words = told("level_differs", "anything", SERIES)
    assert words.about == "a cme api_calls 2026-11-30T11:00:00+00:00"
    assert "3 records of 30 units are recorded" in words.says
    assert "3 of 31 were told" in words.says
    assert words.look == "tailrace windows show 'a cme' api_calls 2026-11-30T11:00:00+00:00"
    assert "the series is billed again" in words.cleared


@pytest.mark.parametrize(
    ("kind", "says", "look"),
    [
        ("meter_formula", "counts something else", "tailrace doctor meter-formula"),
        ("meter_missing", "until the meter exists", "tailrace doctor meter-active"),
        ("meter_of_a_newer_release", "not billed as it must be", "tailrace doctor"),
    ],
)
def test_a_meter_names_the_check_that_says_what_to_do(kind: str, says: str, look: str) -> None:
    words = told(kind, "exports", {"rule": "formula is count, not sum"})
    assert words.about == "exports"
    assert words.says.startswith("formula is count, not sum; ")
    assert says in words.says
    assert words.look == look
    assert "notes it again" in words.cleared


@pytest.mark.parametrize(
    ("kind", "says", "look"),
    [
        ("superseded_recorded", "counts at Stripe after all", "tailrace reconcile"),
        ("error_report_unreadable", "nobody can read", "tailrace rejections list"),
        ("entry_differs", "the first one counts", "tailrace audit"),
        ("of_a_newer_release", "contradicts what is recorded", "tailrace audit"),
    ],
)
def test_any_other_finding_changes_no_amount(kind: str, says: str, look: str) -> None:
    words = told(kind, "meter_event 7", {})
    assert (words.about, words.look) == ("meter_event 7", look)
    assert says in words.says
    assert words.cleared.startswith("no amount changes")


@pytest.mark.parametrize("kind", ["level_differs", "meter_formula"])
def test_one_without_its_evidence_is_told_as_it_stands(kind: str) -> None:
    words = told(kind, "something", {})
    assert (words.about, words.says) == ("something", "it contradicts what is recorded")
