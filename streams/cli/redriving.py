"""Dead meter events sent again: a selection → what becomes of each, or the receipts of doing it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

import psycopg

from streams.cli.database import Connection, decision_rows
from streams.cli.deciding import Row, decided_text, refused_text
from streams.cli.errors import UsageProblemError
from streams.cli.stack import Stack

COURSES = {
    "resend": "the same request again, under its identifier",
    "supersede": "its entries as a new request, under a new identifier",
    "doubtful": "may be in Stripe's books: needs --proof that it is absent there",
    "too_old": "dated more than 34 days ago, which Stripe refuses under any identifier: correct "
    "its window by its opposite (`tailrace correct … --into own`), which resolves it, and the open "
    "period by it (`--into carry`)",
    "no_request": "no request: `tailrace dead show` says what to do",
}


def select(
    ledger: Connection, stack: Stack, which: Mapping[str, object], say: Callable[[str], None]
) -> list[Row]:
    """The dead letters meant, each with its course; what a proof rests on is checked first.

    Args:
        ledger: whose they are.
        stack: how Stripe is reached, where a proof is held against its sum.
        which: parameters of the statement `redrive_selection`.
        say: told what a person should know besides.

    Raises:
        UsageProblemError: a number is no dead letter, or a proof is contradicted.
        StripeUnreadableError: Stripe was not reached or refused.
        psycopg.Error: the ledger refused or went away.
    """
    found = decision_rows(ledger, "redrive_selection", which)
    items = which["items"]
    _refuse_unknown(items if isinstance(items, list) else None, found)
    _tell_causes(ledger, which["cause"], found, say)
    _refuse_contradicted(ledger, stack, found, say)
    return found


def redriving(
    ledger: Connection, found: Sequence[Row], why: str, proof: str | None, *, yes: bool
) -> Iterator[Row]:
    """What becomes of each; with `yes` it is done, one transaction an item.

    Raises:
        psycopg.Error: the ledger went away; what has its receipt is done.
    """
    for row in found:
        yield _line(ledger, row, why, proof, yes=yes)


def _refuse_unknown(items: Sequence[int] | None, found: Sequence[Row]) -> None:
    missing = sorted(set(items or []) - {row["parked_id"] for row in found})
    if missing:
        raise UsageProblemError(
            f"ITEM: {', '.join(map(str, missing))} no dead letters here; nothing was changed",
            fix="see the numbers with `tailrace dead list`",
        )


def _tell_causes(
    ledger: Connection, cause: object, found: Sequence[Row], say: Callable[[str], None]
) -> None:
    """A cause that selects nothing is most often one that is spelled otherwise."""
    if cause is not None and not found:
        causes = [row["cause"] for row in decision_rows(ledger, "redrive_causes")]
        there = f"they died of: {', '.join(causes)}" if causes else "no request is dead"
        say(f"--cause: {cause} selects nothing; {there}")


def _refuse_contradicted(
    ledger: Connection, stack: Stack, found: Sequence[Row], say: Callable[[str], None]
) -> None:
    """What a person believes of a request in doubt is held against Stripe's own sum.

    Raises:
        UsageProblemError: the sum has room for the request, or could not be read.
    """
    for row in found:
        if row["doubtful"] and row["course"] == "supersede":
            # Loaded for this alone: it brings Stripe's library.
            proofs = import_module("streams.cli.dead_proof")
            say(proofs.check_absent(ledger, stack, row))


def _line(ledger: Connection, row: Row, why: str, proof: str | None, *, yes: bool) -> Row:
    """What becomes of one item, as its receipt."""
    number, course = row["parked_id"], row["course"]
    if row["state"] != "open":
        outcome, text = "unchanged", f"unchanged: {decided_text(row)}"
    elif course in {"resend", "supersede"}:
        outcome, text = "would_redrive", f"would redrive {_subject(row)}: {COURSES[course]}"
        if yes:
            outcome, text = _redriven(ledger, row, why, proof)
    else:
        outcome, text = "refused", f"refused {number}: {COURSES[course]}"
    return {
        "item": number,
        "outcome": outcome,
        "course": course,
        "meter_event_id": row["meter_event_id"],
        "identifier": row["identifier"],
        "text": text,
    }


def _redriven(ledger: Connection, row: Row, why: str, proof: str | None) -> tuple[str, str]:
    """One transaction an item: an interrupted command is repeated without harm."""
    values = {"item": row["parked_id"], "reason": why, "proof": proof}
    try:
        decision_rows(ledger, "redrive_item", values)
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        return "refused", refused_text(row["parked_id"], error)
    return "redriven", f"redriven {_subject(row)}: {COURSES[row['course']]}"


def _subject(row: Row) -> str:
    return (
        f"{row['parked_id']} ({row['reason']}: {row['units']} units for {row['customer']}, "
        f"{row['event_name']}, {row['identifier']})"
    )
