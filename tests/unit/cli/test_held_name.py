"""Which skipped record may be named, and what whoever asks too early or in vain is told."""

from typing import Any
from unittest.mock import Mock

import pytest

from streams.cli import held_name
from streams.cli.audit_skipped import SkippedRecord
from streams.cli.errors import CommandError, TryAgainError, UsageProblemError
from streams.core.skipped import Said


def skipped(state: str, *, judged: bool = False) -> SkippedRecord:
    return SkippedRecord("log", 7, 1, "unread", "ops", 0, 3, state, Said(), judged)


@pytest.mark.parametrize(
    ("record", "error", "told"),
    [
        (skipped("skipped"), TryAgainError, "its worker has not gone on yet"),
        (skipped("contradicted"), UsageProblemError, "needs no name: the skip is contradicted"),
        (skipped("done", judged=True), UsageProblemError, "the skip is its verdict"),
    ],
)
def test_what_has_no_name_yet_or_needs_none_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
    record: SkippedRecord,
    error: type[CommandError],
    told: str,
) -> None:
    monkeypatch.setattr(held_name, "read_skipped", Mock(return_value=[record]))
    nobody: Any = None

    with pytest.raises(error, match=told):
        held_name.skipped_record(nobody, 7, 1)


def test_the_last_skip_of_a_place_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before, last = skipped("contradicted"), skipped("done")
    monkeypatch.setattr(held_name, "read_skipped", Mock(return_value=[before, last]))
    nobody: Any = None

    assert held_name.skipped_record(nobody, 7, 1) is last
