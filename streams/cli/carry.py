"""`tailrace carry list|apply`: amounts that missed their invoice, and what a person does with them.

An amount past its billing deadline is never sent for the closed period. By its meter's policy it is
carried into the open period by the workers (`next-period`), waits in `review list` (`review`), or
waits here (`manual`). What a person carries is two entries in one transaction, out of the closed
window and into the open one, and happens once.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import psycopg
import typer

from streams.cli import terminal
from streams.cli.boundary import explain
from streams.cli.database import Connection, connected, ledger_rows
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.options import Dir, Json, Yes, new_app
from streams.cli.stack import resolve
from streams.core.instant import wire_text

app = new_app("Amounts that missed their invoice: list, apply.")

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.")]
Metric = Annotated[str | None, typer.Option(help="Only this metric's.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Entries, at most.")]
APPLIED_MAX = 10_000


class Overdue(NamedTuple):
    """An entry that missed its invoice; instants in microseconds."""

    entry: int
    tenant_id: str
    metric: str
    kind: str
    customer: str
    event_name: str
    window_start_us: int
    window_end_us: int
    units: int
    deadline_us: int
    policy: str
    item: int | None
    rule: str | None


class Carried(NamedTuple):
    """What became of one."""

    entry: int
    tenant_id: str
    metric: str
    customer: str
    event_name: str
    units: int
    deadline_us: int
    policy: str
    out_entry: int
    in_entry: int | None
    elsewhere: str | None
    actor: str
    reason: str
    at_us: int


@app.command("list")
def list_overdue(
    directory: Dir = None,
    tenant: Tenant = None,
    metric: Metric = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Amounts that wait for a decision, oldest deadline first, and what was decided before."""
    settings = resolve(directory).need("ledger_dsn")
    which = {"entries": None, "tenant": tenant, "metric": metric, "limit": limit}
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        waiting = [Overdue(*line) for line in ledger_rows(ledger, "overdue", which)]
        decided = [Carried(*line) for line in ledger_rows(ledger, "carried", which)]
    if as_json:
        terminal.emit_json(
            {
                "waiting": [_waiting_document(line) for line in waiting],
                "decided": [_decided_document(line) for line in decided],
            }
        )
        return
    heads = ("entry", "tenant", "metric", "units", "customer", "window", "deadline", "policy", "")
    listed = [
        (
            *(line.entry, line.tenant_id, line.metric, line.units, line.customer),
            *(wire_text(line.window_start_us), wire_text(line.deadline_us), line.policy),
            line.rule or "",
        )
        for line in waiting
    ]
    if listed:
        terminal.show_table(heads, listed)
    for carried in decided:
        terminal.data(f"{_receipt(carried)}, by {carried.actor}: {carried.reason}")
    terminal.say(f"{len(waiting)} wait, {len(decided)} decided")
    if waiting:
        terminal.say("next: `tailrace carry apply ENTRY … --reason …`")


@app.command()
def apply(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    reason: Annotated[str, typer.Option(help="Why; kept for ever.", show_default=False)],
    entries: Annotated[
        list[int] | None, typer.Argument(metavar="[ENTRY…]", show_default=False)
    ] = None,
    directory: Dir = None,
    tenant: Tenant = None,
    metric: Metric = None,
    customer: Annotated[
        str | None,
        typer.Option(help="Who pays, where the tenant has moved to another customer since."),
    ] = None,
    elsewhere: Annotated[
        str | None,
        typer.Option(
            metavar="REFERENCE",
            help="Not into the open period: where it is billed instead (an invoice item's id), "
            "or `nowhere`.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Puts amounts that missed their invoice into the open period, or closes them elsewhere.

    Name entries, or a --tenant or --metric for all of theirs. Each entry is one transaction with
    its own receipt; done twice it says so and changes nothing. Exit 1 when one was refused.
    """
    settings = resolve(directory).need("ledger_dsn")
    if not reason.strip():
        raise UsageProblemError("--reason: is empty", fix="say why, for those who ask later")
    if not entries and tenant is None and metric is None:
        raise UsageProblemError(
            "no entries are named", fix="`tailrace carry list`, then name some, or --tenant"
        )
    which = {"entries": entries or None, "tenant": tenant, "metric": metric, "limit": APPLIED_MAX}
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        waiting = [Overdue(*line) for line in ledger_rows(ledger, "overdue", which)]
        done = [Carried(*line) for line in ledger_rows(ledger, "carried", which)] if entries else []
        for carried in done:
            terminal.data(f"unchanged: {_receipt(carried)}, by {carried.actor}")
        known = {line.entry for line in waiting} | {line.entry for line in done}
        refused = [entry for entry in entries or () if entry not in known]
        for entry in refused:
            terminal.data(f"refused: entry {entry} has not missed an invoice, or does not exist")
        if waiting:
            _plan(waiting, elsewhere)
            terminal.confirm(
                f"{len(waiting)} amounts would move.", yes=yes, command="tailrace carry apply …"
            )
            decision = {"reason": reason, "elsewhere": elsewhere, "payer": customer}
            refused += [line.entry for line in waiting if not _decide(ledger, line, decision)]
        elif not done and not refused:
            terminal.data("unchanged: nothing of these waits")
    if refused:
        raise typer.Exit(FINDING)


def _plan(waiting: Sequence[Overdue], elsewhere: str | None) -> None:
    where = "the open period" if elsewhere is None else f"{elsewhere} (not sent to Stripe)"
    for line in waiting:
        terminal.say(
            f"plan: entry {line.entry}: {line.units} of {line.tenant_id} {line.metric}, "
            f"{line.customer}'s window {wire_text(line.window_start_us)} → {where}"
        )


def _decide(ledger: Connection, line: Overdue, decision: dict[str, str | None]) -> bool:
    """Carries one entry, with its receipt; False when the ledger refused it by a rule."""
    try:
        rows = ledger_rows(ledger, "carry_entry", {"entry": line.entry, **decision})
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        shown = explain(error)
        terminal.data(f"refused: {shown.what}")
        terminal.say(f"  next: {shown.fix}")
        return False
    out_entry, in_entry, elsewhere, actor, fresh = rows[0]
    moved = _moved(line.entry, line.units, out_entry, in_entry, elsewhere)
    # Somebody else may have decided since the plan was read, and otherwise.
    terminal.data(moved if fresh else f"unchanged: {moved}, by {actor}")
    return True


def _receipt(line: Carried) -> str:
    return _moved(line.entry, line.units, line.out_entry, line.in_entry, line.elsewhere)


def _moved(
    entry: int, units: int, out_entry: int, in_entry: int | None, elsewhere: str | None
) -> str:
    taken = f"entry {entry}: {-units} in entry {out_entry}"
    return f"{taken}, {units} in entry {in_entry}" if in_entry else f"{taken}, {elsewhere}"


def _waiting_document(line: Overdue) -> dict[str, Any]:
    return {
        "entry": line.entry,
        "tenant_id": line.tenant_id,
        "metric": line.metric,
        "kind": line.kind,
        "customer": line.customer,
        "event_name": line.event_name,
        "window_start": wire_text(line.window_start_us),
        "window_end": wire_text(line.window_end_us),
        "units": str(line.units),
        "deadline": wire_text(line.deadline_us),
        "policy": line.policy,
        "item": line.item,
        "rule": line.rule,
    }


def _decided_document(line: Carried) -> dict[str, Any]:
    return {
        "entry": line.entry,
        "tenant_id": line.tenant_id,
        "metric": line.metric,
        "customer": line.customer,
        "event_name": line.event_name,
        "units": str(line.units),
        "deadline": wire_text(line.deadline_us),
        "policy": line.policy,
        "out_entry": line.out_entry,
        "in_entry": line.in_entry,
        "elsewhere": line.elsewhere,
        "actor": line.actor,
        "reason": line.reason,
        "at": wire_text(line.at_us),
    }


APPS = {"carry": app}
