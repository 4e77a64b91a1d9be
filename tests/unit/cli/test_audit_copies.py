"""A skipped record that somebody named, and whose row was sent again: one verdict, not two."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from streams.cli import audit_copies, trace_read
from streams.cli.audit_copies import sent_again, told_as, without_copies
from streams.cli.audit_skipped import NamedSkip, SkippedRecord
from streams.cli.trace_read import Journey, Recorded
from streams.cli.trace_show import steps
from streams.core.audit import Judgment, Tally
from streams.core.audit_names import Identity
from streams.core.skipped import Said

ID = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = "11234567-89ab-cdef-0123-456789abcdef"
WHOSE = Identity(ID, "usage", "acme", "blank", 5)
NAMED = NamedSkip(ID, "acme", "blank", "ann", "its producer's log", 9)
SKIPPED = SkippedRecord("log", 3, 7, "broken", "ann", 0, 8, "done", Said(), False, NAMED)
MINUTE = Judgment(0, "usage", "phantom", Tally(2, 12), Tally(3, 17), Tally(2, 12))


def judged(skipped: SkippedRecord) -> tuple[list[Judgment], list[Identity]]:
    """A minute with one verdict too many."""
    identities = [WHOSE, Identity(OTHER, "usage", "acme", "other", 7)]
    with patch.object(audit_copies, "identities_of", return_value=identities):
        return without_copies(None, [skipped], [MINUTE])  # type: ignore[arg-type]  # not asked


def test_a_named_row_that_was_sent_again_has_one_verdict() -> None:
    (minute,), copies = judged(SKIPPED)
    assert (minute.verdict, minute.cells) == ("equal", Tally(2, 12))
    assert copies == [WHOSE]
    assert told_as(WHOSE, [SKIPPED]) == "skipped"
    assert told_as(WHOSE._replace(kind="conflict"), [SKIPPED]) == "skipped conflict"
    (record,) = sent_again([SKIPPED], copies)
    assert str(record).endswith("(receipt 9); sent again since, and judged by that")


def test_another_verdict_too_many_is_not_explained_by_a_name() -> None:
    other = NamedSkip("21234567-89ab-cdef-0123-456789abcdef", "acme", "third", "ann", "log", 9)
    (minute,), copies = judged(replace(SKIPPED, named=other))
    assert (minute, copies) == (MINUTE, [])
    assert told_as(WHOSE, []) == "dead"
    (record,) = sent_again([SKIPPED], [])
    assert str(record).endswith("(receipt 9); not billed")


def journey(*, copied: bool) -> Journey:
    """What the trace says of the row, which the rules would accept."""
    answers: dict[str, list[dict[str, Any]]] = {
        "trace_named": [
            {"partition": 3, "record_offset": 7, "actor": "ann", "reason": "log", "receipt": 9,
             "named_us": 0}
        ]
    }  # fmt: skip

    def accept(_ledger: Any, _source: str, found: Journey) -> None:
        found.verdict, found.basis = "accepted", "the rules"

    with (
        patch.object(trace_read, "rows", lambda _ledger, name, _values: answers.get(name, [])),
        patch.object(trace_read, "_apply_rules", accept),
    ):
        recorded = Recorded("acme", "blank", ID, "usage", received_at_us=0, read=True)
        ids = frozenset({ID}) if copied else frozenset()
        return trace_read.read_journey(None, "source", recorded, ids)  # type: ignore[arg-type]


def test_the_trace_says_what_became_of_it() -> None:
    left, read = journey(copied=False), journey(copied=True)
    assert (left.verdict, read.verdict) == ("skipped", "accepted")
    texts = [[step.text for step in steps(each) if step.name == "skipped"] for each in (left, read)]
    assert texts == [
        ["its record (3@7) was skipped, not billed; ann named it"],
        ["its record (3@7) was skipped, sent again since, and judged by that; ann named it"],
    ]
