"""`tailrace ledger log`: what people did to the ledger, with who and why."""

from typing import Annotated

import typer

from streams.cli import terminal
from streams.cli.database import connected, rows
from streams.cli.document import instant_text, timed
from streams.cli.options import Dir, Json, instant_option
from streams.cli.stack import resolve


def log(
    directory: Dir = None,
    actor: Annotated[str | None, typer.Option(help="Only what this login did.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this, such as approve, correct, redrive, pause.")
    ] = None,
    from_text: Annotated[
        str | None, typer.Option("--from", metavar="TS", help="Only what was done since.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Shown, at most.")] = 50,
    as_json: Json = False,
) -> None:
    """What was done, the latest first: decisions, corrections, mappings, meters, pauses, audits.

    The log is append-only: nobody can change or remove a row of it.
    """
    which = {
        "actor": actor, "action": action, "from_us": instant_option("--from", from_text),
        "limit": limit,
    }  # fmt: skip
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        found = rows(ledger, "ledger_log", which)
    total = int(found[0]["rows"]) if found else 0
    if as_json:
        names = ("audit_id", "actor", "action", "subject", "why", "detail")
        listed = [
            {"at": instant_text(done["at_us"]), **timed({name: done[name] for name in names})}
            for done in found
        ]
        terminal.emit_json({"total": total, "log": listed})
        return
    terminal.show_table(
        ("receipt", "at", "actor", "action", "subject", "why"),
        [
            (
                done["audit_id"], instant_text(done["at_us"]), done["actor"], done["action"],
                done["subject"], done["why"],
            )
            for done in found
        ],
    )  # fmt: skip
    terminal.say(f"{len(found)} of {total}")
