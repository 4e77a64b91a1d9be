"""`tailrace ledger adopt`: a ledger that was restored or failed over, taken on with a receipt.

Such a ledger has forgotten entries, requests and answers. Its workers have not: they halt
publishing, and tell again what is missing once the difference is adopted. What the forgotten ledger
may have sent is never sent again before Stripe's own sums have told what is there.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, login_of, reconcile_rows
from streams.cli.errors import UsageProblemError
from streams.cli.ledger_log import log
from streams.cli.options import Dir, Json, Yes, new_app
from streams.cli.reconcile_plan import Line
from streams.cli.reconcile_run import REACH_DAYS, Asked, compare_cells, reach_of
from streams.cli.stack import Stack, resolve
from streams.core.instant import wire_text

app = new_app("The ledger itself: adopt one that went back in time.")


@app.callback()
def ledger_group() -> None:
    """The ledger itself: adopt one that went back in time."""


@app.command("adopt")
def adopt(
    directory: Dir = None,
    stripe: Annotated[
        bool,
        typer.Option("--stripe/--no-stripe", help="Show what Stripe has and this ledger has not."),
    ] = True,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="You restored it, though no worker is left to notice."),
    ] = False,
    reason: Annotated[str | None, typer.Option(help="What happened; needed with --yes.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Takes on a ledger that was restored from a backup or failed over.

    Shows which partitions the workers remember further than the ledger, and what Stripe may hold
    that it does not know. With --yes --reason the workers tell again what is missing, requests that
    were under way count as in doubt, and nothing dated in the last 35 days is sent before
    `tailrace reconcile` has compared its hour. Done twice it changes nothing.

    Workers notice by what they remember, on their disks, in the packed log and in the consumer
    group's offsets. Where all of that was lost together with the ledger, say so with --restored
    before the first worker starts.
    """
    stack = resolve(directory)
    settings = stack.need("ledger_dsn")
    if yes and not (reason or "").strip():
        raise UsageProblemError(
            "--reason: adopting needs one",
            fix="`tailrace ledger adopt --yes --reason 'restored the backup of 02:00'`",
        )
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        state = reconcile_rows(ledger, "adoption_state")[0]
        partitions = reconcile_rows(ledger, "went_back")
        cells: Sequence[Line] = ()
        adopted = False
        if state["halted"] or restored:
            cells = _compared(stack, ledger) if stripe else ()
            if not as_json:
                _show_plan(partitions, state, cells)
            if yes:
                values = {"reason": reason, "actor": login_of(ledger), "declared": restored}
                adopted = reconcile_rows(ledger, "adopt", values)[0]["adoption_id"] is not None
                state = reconcile_rows(ledger, "adoption_state")[0]
        receipts = reconcile_rows(ledger, "adoptions")
    receipt = receipts[0] if receipts else None
    if as_json:
        terminal.emit_json(_document(state, partitions, cells, receipt, adopted=adopted))
    else:
        _show_end(state, receipt, adopted=adopted)


def _compared(stack: Stack, ledger: Connection) -> list[Line]:
    """Cells where Stripe and this ledger differ, or that are in doubt already."""
    settings = stack.need("stripe_api_base", "stripe_api_key")
    limits = reconcile_rows(ledger, "limits")[0]
    asked = Asked(None, None, reach_of(limits["now_us"]))
    return compare_cells(ledger, settings, asked, limits).lines


def _show_plan(
    partitions: list[dict[str, Any]], state: dict[str, Any], cells: Sequence[Line]
) -> None:
    heads = ("topic", "partition", "ledger holds", "was confirmed")
    listed = [(p["topic"], p["partition"], p["stored"], p["acknowledged"]) for p in partitions]
    terminal.show_table(heads, listed)
    if state["forgotten_attempt"] is not None:
        terminal.data(
            f"workers remember attempt {state['forgotten_attempt']}, which this ledger lacks"
        )
    differing = [
        (line.subject, line.side.figures.recorded, line.observed - line.side.figures.recorded)
        for line in cells
    ]
    if differing:
        terminal.data()
        terminal.show_table(("cell", "recorded here", "at Stripe besides"), differing)
    terminal.say(
        f"plan: the workers of {len(listed)} partitions tell again what the ledger lacks; "
        f"{state['unsettled']} requests count as in doubt; what is dated in the last "
        f"{REACH_DAYS} days, up to now, waits until its hour was compared with Stripe: that hour "
        "must be over, and Stripe's sum of it stand still"
    )
    terminal.say(
        "decisions, corrections and mappings made since the restored state are not in it: make "
        "them again; what they had sent is found by its hour and not sent twice"
    )


def _show_end(state: dict[str, Any], receipt: dict[str, Any] | None, *, adopted: bool) -> None:
    if adopted and receipt is not None:
        terminal.data(f"adopted: receipt {receipt['adoption_id']}, {receipt['reason']}")
        terminal.say("next: `tailrace reconcile`, and again when its sums have stood still")
    elif state["halted"]:
        terminal.say("next: `tailrace ledger adopt --yes --reason 'what happened'`")
    elif receipt is None:
        terminal.data("nothing to adopt: no worker remembers more than this ledger holds")
    else:
        terminal.data(
            f"nothing to adopt: receipt {receipt['adoption_id']} of {wire_text(receipt['at_us'])} "
            f"by {receipt['actor']}, {receipt['reason']}; {state['cells_to_compare']} cells are "
            "still to be compared"
        )


def _document(
    state: dict[str, Any],
    partitions: list[dict[str, Any]],
    cells: Sequence[Line],
    receipt: dict[str, Any] | None,
    *,
    adopted: bool,
) -> dict[str, Any]:
    return {
        "halted": state["halted"],
        "adopted": adopted,
        "partitions": [
            {
                "topic": p["topic"],
                "log_id": p["log_id"],
                "partition": p["partition"],
                "stored": p["stored"],
                "acknowledged": p["acknowledged"],
            }
            for p in partitions
        ],
        "forgotten_attempt": state["forgotten_attempt"],
        "unsettled_requests": state["unsettled"],
        "cells_to_compare": state["cells_to_compare"],
        "cells": [line.document() for line in cells],
        "receipt": None
        if receipt is None
        else {
            "adoption": receipt["adoption_id"],
            "at": wire_text(receipt["at_us"]),
            "actor": receipt["actor"],
            "reason": receipt["reason"],
            "detail": msgspec.json.decode(receipt["detail"]),
        },
    }


app.command("log")(log)

APPS = {"ledger": app}
