"""`tailrace findings list|clear`: what contradicts the ledger, until a person has dealt with it."""

import shlex
from typing import Annotated, Any

import msgspec
import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, row, rows
from streams.cli.document import instant_text
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.options import Dir, Json, Reason, Yes, kept_reason, new_app
from streams.cli.stack import resolve
from streams.core.finding import Told, told

app = new_app("What contradicts the ledger or is wrong at Stripe: list it, clear what is settled.")

Row = dict[str, Any]
Number = Annotated[int, typer.Argument(metavar="FINDING", min=1, show_default=False)]


@app.callback()
def findings() -> None:
    """What contradicts the ledger or is wrong at Stripe: list it, clear what is settled."""


@app.command("list")
def list_findings(directory: Dir = None, as_json: Json = False) -> None:
    """Open findings, the oldest first, each with what to type to see more; exit 1 if there are any.

    A series with a finding is not billed further until it is cleared. Meters are compared with the
    catalogue by workers, and cleared by them.
    """
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        found = rows(ledger, "findings", {"finding": None})
    if as_json:
        terminal.emit_json({"findings": [_document(each) for each in found]})
    else:
        terminal.show_table(
            ("finding", "kind", "since", "about", "says", "look"),
            [
                (
                    each["finding_id"], each["kind"], instant_text(each["found_us"]), words.about,
                    words.says, words.look,
                )
                for each in found
                for words in (_words(each),)
            ],
        )  # fmt: skip
        if found:
            terminal.say('settled? `tailrace findings clear FINDING --reason "…" --yes`')
    if found:
        raise typer.Exit(FINDING)


@app.command("clear")
def clear(number: Number, reason: Reason = None, directory: Dir = None, yes: Yes = False) -> None:
    """Says that a finding was dealt with, and how. It is kept, with who and why.

    No amount changes by it. A series that it held is billed again, by what is recorded. Done twice,
    it says who cleared it.
    """
    command = f"tailrace findings clear {number}"
    why = kept_reason(reason, command)
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        found, changed = _one(ledger, number), False
        if found["cleared_us"] is None:
            words = _words(found)
            terminal.say(f"plan: clear finding {number}, {found['kind']} of {words.about}")
            terminal.say(f"  {words.says}; see `{words.look}`")
            terminal.say(f"  {words.cleared}")
            full = f"{command} --reason {shlex.quote(why)}"
            terminal.confirm("It would count as dealt with.", yes=yes, command=full)
            order = {"finding": number, "reason": why}
            changed = bool(row(ledger, "clear_finding", order)["changed"])
            found = _one(ledger, number)
    verb = "cleared" if changed else "unchanged: cleared already,"
    terminal.data(
        f"{verb} finding {number} by {found['cleared_by']} at {instant_text(found['cleared_us'])}: "
        f"{found['why']} (receipt {found['receipt']})"
    )


def _one(ledger: Connection, number: int) -> Row:
    found = rows(ledger, "findings", {"finding": number})
    if not found:
        raise UsageProblemError(
            f"FINDING: there is no finding {number}", fix="`tailrace findings list`"
        )
    return found[0]


def _words(finding: Row) -> Told:
    detail = msgspec.json.decode(finding["detail"], type=dict[str, Any])
    return told(finding["kind"], finding["subject"], detail)


def _document(finding: Row) -> dict[str, Any]:
    words = _words(finding)
    return {
        "finding": finding["finding_id"],
        "kind": finding["kind"],
        "found_at": instant_text(finding["found_us"]),
        "about": words.about,
        "says": words.says,
        "look": words.look,
        "cleared": words.cleared,
        "detail": msgspec.json.decode(finding["detail"]),
    }


APPS = {"findings": app}
