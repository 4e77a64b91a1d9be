"""`tailrace dead list|show|redrive`: what cannot be used or sent, and how it goes on."""

import shlex
from typing import Annotated, Any

import typer

from streams.cli import terminal
from streams.cli.database import connected
from streams.cli.deciding import Row, again, need_reason
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.options import Dir, Json, Reason, Yes, instant_option, new_app
from streams.cli.parked_show import show_item
from streams.cli.queues import Limit, Tenant, list_items
from streams.cli.redriving import redriving, select
from streams.cli.stack import resolve

app = new_app("What cannot be used or sent: malformed, unread, refused, exhausted, ambiguous.")


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
        found = select(ledger, stack, which, terminal.say)
        try:
            for line in redriving(ledger, found, why, proof, yes=yes):
                lines.append(line)
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


def _command(
    items: list[int] | None, filters: dict[str, Any], proof: str | None, reason: str | None
) -> str:
    chosen = {**filters, "proof": proof}
    options = [f"--{name} {shlex.quote(text)}" for name, text in chosen.items() if text]
    return again(["tailrace dead redrive", *(items or []), *options], reason)


APPS = {"dead": app}
