"""Nothing but a verdict makes an `ok`, whatever the test itself says."""

from datetime import UTC, datetime

import pytest

from tests.drills.drill import Drill
from tests.drills.outcome import Outcome
from tests.support.oracle import Verdict
from tests.support.witness import Witness

AT = datetime(2026, 11, 30, tzinfo=UTC)


def outcome(*verdicts: Verdict, passed: bool = True) -> Outcome:
    witness = Witness()
    for verdict in verdicts:
        books = object()
        witness.verdicts[id(books)] = (books, verdict)
    return Outcome(Drill("one", "about", long=False), AT, 1.0, passed, witness)


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (outcome(Verdict()), "ok"),
        (outcome(), "FAILED"),
        (outcome(Verdict(), passed=False), "FAILED"),
        (outcome(Verdict(), Verdict(stuck=1)), "FAILED"),
        (outcome(Verdict(misattributed=1), Verdict()), "FAILED"),
    ],
)
def test_ok_takes_a_pass_and_a_verdict_without_a_difference(made: Outcome, word: str) -> None:
    assert made.word == word
    assert made.line().startswith(word)
    assert made.summary()["ok"] is (word == "ok")
    assert made.report().startswith(f"# one: {word}\n")
