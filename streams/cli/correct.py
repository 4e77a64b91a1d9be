"""`tailrace correct …`: signed corrections by people, each under a key of its own."""

from typing import Annotated, Any

import typer

from streams.cli import terminal
from streams.cli.correct_show import document, lines, say_resolved
from streams.cli.correct_target import Wanted, reversal, wanted_correction
from streams.cli.database import Connection, connected, decision_rows
from streams.cli.deciding import need_reason
from streams.cli.document import instant_text, timed
from streams.cli.errors import USAGE, UsageProblemError
from streams.cli.options import Dir, Into, Json, Reason, Where, Yes, new_app
from streams.cli.queues import Tenant
from streams.cli.stack import resolve

app = new_app("Signed corrections.")

Proposal = Annotated[int, typer.Argument(metavar="PROPOSAL", show_default=False)]


@app.callback(invoke_without_command=True)
def correct(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Whose usage.", show_default=False)] = None,
    metric: Annotated[str | None, typer.Option(help="Of which metric.", show_default=False)] = None,
    event_key: Annotated[
        str | None, typer.Option(help="The usage event that was wrong.", show_default=False)
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="TS", help="Or any instant of the window.", show_default=False),
    ] = None,
    delta: Annotated[
        str | None, typer.Option(help="What to add; negative takes back.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="The correction's own key: the same key counts once.", show_default=False
        ),
    ] = None,
    into: Into = None,
    reason: Reason = None,
    directory: Dir = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Adds a signed correction to a window. Shows what it would do; --yes does it.

    Who corrects is the login of TAILRACE_LEDGER_DSN. Above a limit the correction becomes a
    proposal, which another login approves. Nothing may make a billing period negative.
    """
    if context.invoked_subcommand is not None:
        return
    given = {"--tenant": tenant, "--delta": delta, "--key": key}
    missing = [name for name, value in given.items() if not value]
    if missing or not (event_key or (window and metric)):
        named = missing or ["--event-key, or --metric with --window"]
        raise UsageProblemError(
            f"{', '.join(named)}: missing",
            fix="`tailrace correct --tenant acme --metric api_calls --window "
            "2026-11-29T10:00:00Z --delta -20 --key ticket-1`",
        )
    stack = resolve(directory)
    with connected(stack.need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        wanted = wanted_correction(
            ledger, stack, tenant or "", metric, event_key, window, delta or "", key or ""
        )
        _carry_out(ledger, wanted, into, reason, yes=yes, as_json=as_json)


@app.command()
def reverse(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False)],
    directory: Dir = None,
    tenant: Tenant = None,
    into: Into = None,
    reason: Reason = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Takes a correction back by its opposite. Shows what it would do; --yes does it."""
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        wanted = reversal(ledger, key, tenant)
        _carry_out(ledger, wanted, into, reason, yes=yes, as_json=as_json)


@app.command("list")
def list_corrections(
    directory: Dir = None,
    tenant: Tenant = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Decided proposals and booked corrections, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Proposals that wait for another login; with --all everything that was corrected."""
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        which: dict[str, Any] = {"tenant": tenant, "decided": show_all, "proposal": None}
        proposals = decision_rows(ledger, "proposals", which)
        booked = decision_rows(ledger, "corrections", {"tenant": tenant, "key": None})
    if as_json:
        listed = [timed(row) for row in booked] if show_all else []
        terminal.emit_json({"proposals": [timed(row) for row in proposals], "booked": listed})
        return
    heads = ("number", "state", "tenant", "metric", "units", "key", "by", "reason")
    rows = [
        (f"proposal {p['proposal_id']}", p["state"], p["tenant_id"], p["metric"], p["units"],
         p["correction_key"], p["proposed_by"], p["reason"])
        for p in proposals
    ]  # fmt: skip
    if show_all:
        rows += [
            (f"entry {e['entry_id']}", e["state"], e["tenant_id"], e["metric"], e["units"],
             e["correction_key"], e["actor"], e["reason"])
            for e in booked
        ]  # fmt: skip
    terminal.show_table(heads, rows)
    waiting = sum(p["state"] == "open" for p in proposals)
    terminal.say(f"{waiting} proposals wait; `tailrace correct approve PROPOSAL --reason … --yes`")


@app.command()
def approve(
    proposal: Proposal,
    directory: Dir = None,
    into: Into = None,
    reason: Reason = None,
    yes: Yes = False,
) -> None:
    """Books what another login proposed. Shows what it would do; --yes does it."""
    why = need_reason(reason, yes=yes)
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        known = _proposal(ledger, proposal)
        if known["state"] == "approved":
            terminal.data(f"unchanged: {_decided(known)}, entry {known['entry_id']}")
            return
        wanted = Wanted(
            known["tenant_id"], known["metric"], known["instant_us"], int(known["units"]),
            known["correction_key"], known["target"],
        )  # fmt: skip
        plan = _plan(ledger, wanted, into or (known["into"] and Where(known["into"])))
        with ledger.transaction(force_rollback=not yes):
            values = {"proposal": proposal, "reason": why, "into": into.value if into else None}
            entry = decision_rows(ledger, "approve_proposal", values)[0]["entry_id"]
            ended = _ended_by(ledger, entry)
        for line in lines(wanted, plan, known["reason"]):
            terminal.data(line)
    if yes:
        terminal.data(f"booked: entry {entry}, proposed by {known['proposed_by']}")
        say_resolved(ended)
    else:
        terminal.say("nothing was changed; `tailrace correct approve … --reason … --yes` does it")


@app.command()
def reject(
    proposal: Proposal, directory: Dir = None, reason: Reason = None, yes: Yes = False
) -> None:
    """Turns a proposal down, or takes one's own back. Shows what it would do; --yes does it."""
    why = need_reason(reason, yes=yes)
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        known = _proposal(ledger, proposal)
        if known["state"] == "rejected":
            terminal.data(f"unchanged: {_decided(known)}")
            return
        with ledger.transaction(force_rollback=not yes):
            decision_rows(ledger, "reject_proposal", {"proposal": proposal, "reason": why})
    if not yes:
        terminal.say("nothing was changed; `tailrace correct reject … --reason … --yes` does it")
    said = "rejected" if yes else "would reject"
    terminal.data(
        f"{said} {proposal}: {known['units']} units of {known['metric']} for {known['tenant_id']}"
    )


@app.command()
def limit(
    units: Annotated[int | None, typer.Argument(metavar="[UNITS]", show_default=False)] = None,
    directory: Dir = None,
    metric: Annotated[str | None, typer.Option(help="For this metric alone.")] = None,
    reason: Reason = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """What one person may correct alone, per tenant, metric and billing period; sets it.

    Only the ledger's owner sets it: whoever corrects does not choose from where on others must
    agree.
    """
    stack = resolve(directory)
    if units is not None:
        why = need_reason(reason, yes=yes)
        with connected(stack.admin_dsn("ledger"), "the ledger") as ledger:
            values = {"units": units, "metric": metric, "reason": why}
            with ledger.transaction(force_rollback=not yes):
                changed = decision_rows(ledger, "set_correction_limit", values)[0]["changed"]
        if not yes:
            terminal.say("nothing was changed; the same with --reason … --yes does it")
        said = "set" if yes else "would set"
        whose = metric or "all metrics"
        terminal.data(f"{said if changed else 'unchanged:'} {whose}: {units} units alone")
        return
    with connected(stack.need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        limits = decision_rows(ledger, "correction_limits")
    if as_json:
        listed = [{"metric": row["metric"] or None, "units": row["units"]} for row in limits]
        terminal.emit_json({"limits": listed})
        return
    listed_rows = [(row["metric"] or "(all others)", row["units"]) for row in limits]
    terminal.show_table(("metric", "units alone"), listed_rows)


def _carry_out(
    ledger: Connection,
    wanted: Wanted,
    into: Where | None,
    reason: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Preview, then, with yes, the entry or the proposal."""
    why = need_reason(reason, yes=yes)
    plan = _plan(ledger, wanted, into)
    number, outcome = plan["entry_id"] or plan["proposal_id"], "unchanged"
    if number is None:
        if plan["problem"]:
            terminal.say(f"refused: {plan['problem']}")
            terminal.say(f"  next: {plan['hint'] or 'see `tailrace correct --help`'}")
            raise typer.Exit(USAGE)
        outcome = "proposed" if plan["four_eyes"] else "booked"
        if yes:
            act = "propose_correction" if plan["four_eyes"] else "correct"
            values = {**wanted.values(), "into": into.value if into else None, "reason": why}
            number = next(iter(decision_rows(ledger, act, values)[0].values()))
    booked = plan["entry_id"] or (number if outcome == "booked" else None)
    ended = _ended_by(ledger, booked)
    if as_json:
        terminal.emit_json(document(wanted, plan, outcome, number, ended, done=yes))
        return
    for line in lines(wanted, plan, reason):
        terminal.data(line)
    _say_outcome(wanted, plan, outcome, number, yes=yes)
    say_resolved(ended)


def _say_outcome(
    wanted: Wanted, plan: dict[str, Any], outcome: str, number: int | None, *, yes: bool
) -> None:
    match outcome, yes:
        case "unchanged", _:
            what = "entry" if plan["entry_id"] else "proposal"
            terminal.data(f"unchanged: key {wanted.key} stands for {what} {number}")
        case "booked", True:
            terminal.data(f"booked: entry {number}, by {plan['actor']}")
        case _, True:
            terminal.data(f"proposed: {number}, by {plan['actor']}; another login decides:")
            terminal.data(f"    tailrace correct approve {number} --reason … --yes")
        case _:
            terminal.say("nothing was changed; the same with --reason … --yes does it")


def _ended_by(ledger: Connection, entry: int | None) -> list[int]:
    """Dead items that are resolved because this entry took their amounts back."""
    if entry is None:
        return []
    return [row["parked_id"] for row in decision_rows(ledger, "ended_by", {"entry": entry})]


def _plan(ledger: Connection, wanted: Wanted, into: Where | None) -> dict[str, Any]:
    values = {**wanted.values(), "into": into.value if into else None}
    return decision_rows(ledger, "plan_correction", values)[0]


def _proposal(ledger: Connection, number: int) -> dict[str, Any]:
    found = decision_rows(
        ledger, "proposals", {"tenant": None, "decided": True, "proposal": number}
    )
    if not found:
        raise UsageProblemError(
            f"PROPOSAL: {number} is not in this ledger", fix="`tailrace correct list --all`"
        )
    return found[0]


def _decided(known: dict[str, Any]) -> str:
    at = instant_text(known["decided_us"])
    return (
        f"{known['proposal_id']} was {known['state']} by {known['decided_by']} at {at}: "
        f"{known['why']}"
    )


APPS = {"correct": app}
