"""`tailrace dead list|show|redrive`: what cannot be used or sent, and how it goes on."""

import shlex
from importlib import import_module
from typing import Annotated, Any

import psycopg
import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, decision_rows
from streams.cli.deciding import Row, again, decided_text, need_reason, refused_text
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.options import Dir, Json, Reason, Yes, instant_option, new_app
from streams.cli.parked_show import show_item
from streams.cli.queues import Limit, Tenant, list_items
from streams.cli.stack import Stack, resolve

app = new_app("What cannot be used or sent: malformed, unread, refused, exhausted, ambiguous.")

COURSES = {
    "resend": "the same request again, under its identifier",
    "supersede": "its entries as a new request, under a new identifier",
    "doubtful": "may be in Stripe's books: needs --proof that it is absent there",
    "too_old": "dated more than 34 days ago, which Stripe refuses under any identifier: correct "
    "its window by its opposite (`tailrace correct … --into own`), which resolves it, and the open "
    "period by it (`--into carry`)",
    "no_request": "no request: `tailrace dead show` says what to do",
}


@app.callback()
def dead() -> None:
    """What cannot be used or sent: malformed, unread, refused, exhausted, ambiguous."""


@app.command("list")
def list_dead(
    directory: Dir = None, tenant: Tenant = None, limit: Limit = 100, as_json: Json = False
) -> None:
    """Dead letters, oldest first, each with its reason."""
    dsn = resolve(directory).need("ledger_dsn").ledger_dsn
    list_items("dead", dsn, tenant, limit, as_json=as_json)


@app.command("show")
def show_dead(
    item: Annotated[int, typer.Argument(metavar="ITEM", show_default=False)],
    directory: Dir = None,
    as_json: Json = False,
) -> None:
    """One dead letter with its evidence: attempts, codes, bytes, and what to do next."""
    show_item("dead", resolve(directory), item, as_json=as_json)


@app.command()
def redrive(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    items: Annotated[
        list[int] | None, typer.Argument(metavar="[ITEM...]", show_default=False)
    ] = None,
    directory: Dir = None,
    cause: Annotated[
        str | None, typer.Option(help="Kind of death, or a code of Stripe's.", show_default=False)
    ] = None,
    tenant: Tenant = None,
    from_text: Annotated[
        str | None, typer.Option("--from", metavar="TS", help="Parked at or after.")
    ] = None,
    to_text: Annotated[
        str | None, typer.Option("--to", metavar="TS", help="Parked before.")
    ] = None,
    proof: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Where Stripe's summaries show that it is absent; its hour is read again.",
        ),
    ] = None,
    reason: Reason = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Sends dead meter events again: those named, or all open ones of a selection.

    A dry run; --yes does it, with a receipt a line as it is done. A request that would be the same
    keeps its identifier, so that Stripe counts it once whatever it holds: also one in doubt, for
    most of a day. After that it needs --proof, and Stripe's own sum must have stood still without
    room for it. Exit 1 if one is refused.
    """
    filters = {"cause": cause, "tenant": tenant, "from": from_text, "to": to_text}
    _check_selection(items, filters, proof)
    why = need_reason(reason, yes=yes)
    which = {
        "items": items or None,
        "cause": cause,
        "tenant": tenant,
        "from_us": instant_option("--from", from_text),
        "to_us": instant_option("--to", to_text),
        "proof": proof,
    }
    lines: list[Row] = []
    stack = resolve(directory)
    with connected(stack.need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        found = decision_rows(ledger, "redrive_selection", which)
        _refuse_unknown(items, found)
        _tell_causes(ledger, cause, found)
        _refuse_contradicted(ledger, stack, found)
        try:
            for row in found:
                lines.append(_line(ledger, row, why, proof, yes=yes))
                if not as_json:
                    terminal.data(lines[-1]["text"])
        finally:
            # Whatever ends it in the middle: what is done has its receipt.
            if as_json:
                terminal.emit_json({"done": yes, "items": lines})
    changed = sum(line["outcome"] in {"would_redrive", "redriven"} for line in lines)
    terminal.say(f"{changed} of {len(lines)} {'redriven' if yes else 'would be redriven'}")
    if changed and not yes:
        terminal.say(f"nothing was changed; `{_command(items, filters, proof, reason)}` does it")
    if any(line["outcome"] == "refused" for line in lines):
        raise typer.Exit(FINDING)


def _check_selection(
    items: list[int] | None, filters: dict[str, str | None], proof: str | None
) -> None:
    chosen = [f"--{name}" for name, value in filters.items() if value is not None]
    if bool(items) == bool(chosen):
        raise UsageProblemError(
            "which dead letters? Either their numbers, or a selection",
            fix="`tailrace dead redrive 7 8`, or `tailrace dead redrive --cause no_meter`",
        )
    if proof is not None and (items is None or len(items) != 1):
        raise UsageProblemError(
            "--proof: a proof of absence speaks of one request, so it goes with one ITEM",
            fix='`tailrace dead redrive 7 --proof "summary of … shows 0"`',
        )


def _refuse_unknown(items: list[int] | None, found: list[Row]) -> None:
    missing = sorted(set(items or []) - {row["parked_id"] for row in found})
    if missing:
        raise UsageProblemError(
            f"ITEM: {', '.join(map(str, missing))} no dead letters here; nothing was changed",
            fix="see the numbers with `tailrace dead list`",
        )


def _tell_causes(ledger: Connection, cause: str | None, found: list[Row]) -> None:
    """A cause that selects nothing is most often one that is spelled otherwise."""
    if cause is not None and not found:
        causes = [row["cause"] for row in decision_rows(ledger, "redrive_causes")]
        there = f"they died of: {', '.join(causes)}" if causes else "no request is dead"
        terminal.say(f"--cause: {cause} selects nothing; {there}")


def _refuse_contradicted(ledger: Connection, stack: Stack, found: list[Row]) -> None:
    """What a person believes of a request in doubt is held against Stripe's own sum.

    Raises:
        UsageProblemError: the sum has room for the request, or could not be read.
    """
    for row in found:
        if row["doubtful"] and row["course"] == "supersede":
            # Loaded for this alone: it brings Stripe's library.
            proofs = import_module("streams.cli.dead_proof")
            terminal.say(proofs.check_absent(ledger, stack, row))


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


def _command(
    items: list[int] | None, filters: dict[str, Any], proof: str | None, reason: str | None
) -> str:
    chosen = {**filters, "proof": proof}
    options = [f"--{name} {shlex.quote(text)}" for name, text in chosen.items() if text]
    return again(["tailrace dead redrive", *(items or []), *options], reason)


APPS = {"dead": app}
