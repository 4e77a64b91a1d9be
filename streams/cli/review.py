"""`tailrace review list|show|approve|reject`: usage that a person decides on."""

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from streams.cli.database import Connection, decision_rows
from streams.cli.deciding import Act, Row, again, decide
from streams.cli.document import instant_text
from streams.cli.options import Dir, Into, Json, Reason, Where, Yes, new_app
from streams.cli.parked_show import show_item
from streams.cli.queues import Items, Limit, Tenant, list_items
from streams.cli.stack import resolve
from streams.core.instant import wire_text

app = new_app("What a person decides on: late, early, conflicting, too large.")

Proof = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Beyond the horizon: where it shows that it never counted."),
]


@app.callback()
def review() -> None:
    """What a person decides on: late, early, conflicting, too large."""


@app.command("list")
def list_review(
    directory: Dir = None, tenant: Tenant = None, limit: Limit = 100, as_json: Json = False
) -> None:
    """Items that wait for a decision, oldest first, each with its reason."""
    dsn = resolve(directory).need("ledger_dsn").ledger_dsn
    list_items("review", dsn, tenant, limit, as_json=as_json)


@app.command("show")
def show_review(
    item: Annotated[int, typer.Argument(metavar="ITEM", show_default=False)],
    directory: Dir = None,
    as_json: Json = False,
) -> None:
    """One item in full: reason, both versions, amounts, and what each decision would do."""
    show_item("review", resolve(directory), item, as_json=as_json)


@app.command()
def approve(
    items: Items,
    directory: Dir = None,
    into: Into = None,
    proof: Proof = None,
    reason: Reason = None,
    yes: Yes = False,
) -> None:
    """Bills items, each once for ever. Shows the plan; --yes does it.

    An item whose own invoice is closed is asked for: --into own puts the amount into its window,
    where it missed its invoice and the meter's carry decides; --into carry dates it in the open
    period. A service's correction of more units than `tailrace correct limit` shows needs two
    logins: the first one agrees, the second one bills it.
    """
    act = approving(items, into, proof, reason)
    decide(resolve(directory).need("ledger_dsn").ledger_dsn, items, act, reason, yes=yes)


@app.command()
def reject(items: Items, directory: Dir = None, reason: Reason = None, yes: Yes = False) -> None:
    """Decides that items are never billed. Shows the plan; --yes does it.

    Also ends malformed dead letters whose usage was recorded anew. A dead meter event is an amount
    that is owed: it is redriven, or its window corrected by its opposite, which ends it.
    """
    act = rejecting(items, reason)
    decide(resolve(directory).need("ledger_dsn").ledger_dsn, items, act, reason, yes=yes)


def approving(
    items: Sequence[int], into: Where | None, proof: str | None, reason: str | None
) -> Act:
    """The act of billing items."""
    given = [f"--into {into.value}"] if into else []
    given += [f"--proof {shlex.quote(proof)}"] if proof else []
    return Act(
        "approve",
        "approved",
        "approve_item",
        {"proof": proof, "into": into.value if into else None},
        _billed,
        again(["tailrace review approve", *items, *given], reason),
    )


def rejecting(items: Sequence[int], reason: str | None) -> Act:
    """The act of never billing them."""
    return Act(
        "reject",
        "rejected",
        "reject_item",
        {},
        _unbilled,
        again(["tailrace review reject", *items], reason),
    )


def _billed(ledger: Connection, item: Row, result: Row) -> str:
    if result["entry_id"] is None:
        return (
            f"{item['parked_id']}: {int(item['units']):+d} units of {item['metric']} for "
            f"{item['tenant_id']} are more than one person decides alone: nothing is billed until "
            "another login of finance approves it as well"
        )
    [entry] = decision_rows(ledger, "entry_effect", {"entry": result["entry_id"]})
    before = int(entry["after_units"]) - entry["delta"]
    window = f"{wire_text(entry['window_start_us'])} to {wire_text(entry['window_end_us'])}"
    return (
        f"{item['parked_id']}: {entry['delta']:+d} units of {entry['metric']} for "
        f"{entry['tenant_id']}, window {window}: {before} → {entry['after_units']}; "
        f"{_stripe(entry)}"
    )


def _stripe(entry: Row) -> str:
    """What becomes of an entry at Stripe."""
    match entry["state"]:
        case "unmapped":
            return f"held until `tailrace customers map {shlex.quote(entry['tenant_id'])} cus_…`"
        case "carry":
            return "not sent: its own invoice is closed, the meter's carry decides"
        case _:
            until = instant_text(entry["deadline_us"])
            bound = f" before {until}" if until else ""
            return f"{entry['customer']} is told{bound} as {entry['event_name']}"


def _unbilled(ledger: Connection, item: Row, result: Row) -> str:
    del ledger, result
    amount = f"{item['units']} units of {item['metric']} for " if item["units"] else ""
    return f"{item['parked_id']}: {item['reason']}, {amount}{item['tenant_id'] or 'nobody'}"


APPS = {"review": app}
