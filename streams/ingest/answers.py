"""Outcomes of a call's events → the HTTP status and the JSON that the producer gets.

A single event's status is its outcome's. A list has that of its gravest one, and the answer holds
them all in the order of the body: whatever the status, what is `recorded` there is recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, assert_never

from streams.core.instant import to_us, wire_text
from streams.ingest.outcome import CallRefusedError, Contents, Outcome, Refused, Stored

Named = Literal["recorded", "duplicate", "conflict", "invalid", "forbidden"]
Document = dict[str, Any]

STATUSES: Final[Mapping[Named, int]] = {
    "forbidden": 403,
    "invalid": 422,
    "conflict": 409,
    "recorded": 201,
    "duplicate": 200,
}
"""Gravest first."""


def name_of(outcome: Outcome) -> Named:
    """The one word for it."""
    match outcome:
        case Stored(status=status):
            return status
        case Refused(forbidden=forbidden):
            return "forbidden" if forbidden else "invalid"
        case _ as never:
            assert_never(never)


def one(outcome: Outcome) -> tuple[int, Document]:
    """The answer to a single event."""
    return STATUSES[name_of(outcome)], _told(outcome)


def many(outcomes: Sequence[Outcome]) -> tuple[int, Document]:
    """The answer to a list."""
    names = [name_of(outcome) for outcome in outcomes]
    gravest = next(status for name, status in STATUSES.items() if name in names)
    counts: Document = {name: names.count(name) for name in sorted(STATUSES)}
    results = [{"index": index, **_told(each)} for index, each in enumerate(outcomes)]
    return gravest, {"counts": counts, "results": results}


def refusal(error: CallRefusedError) -> Document:
    """The answer to a call of which nothing was recorded."""
    return {"error": error.what, "fix": error.fix}


def _told(outcome: Outcome) -> Document:
    name = name_of(outcome)
    match outcome:
        case Stored():
            received_at = wire_text(to_us(outcome.received_at))
            told: Document = {
                "status": name,
                "event_id": outcome.event_id,
                "received_at": received_at,
            }
            if outcome.contents is not None:
                told["conflict"] = _conflict(outcome.event_id, outcome.contents)
            return told
        case Refused(problem=problem):
            # A list, so that a producer reads on when a later release names several.
            problems = [{"path": problem.path, "rule": problem.rule, "fix": problem.fix}]
            return {"status": name, "problems": problems}
        case _ as never:
            assert_never(never)


def _conflict(event_id: str, contents: Contents) -> Document:
    return {
        "parked": f"{event_id}:{contents.offered}",
        "content": contents.offered,
        "first_content": contents.first,
        "first_received_at": wire_text(to_us(contents.first_received_at)),
        "first_metric": contents.first_metric,
        "first_quantity": contents.first_quantity,
        "first_occurred_at": wire_text(to_us(contents.first_occurred_at)),
    }
