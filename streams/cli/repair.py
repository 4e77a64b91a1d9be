"""`tailrace connector repair`: a lost, advanced or foreign slot → a new one, its gap sent again.

The plan is shown first; nothing is touched before somebody has said yes.
"""

from typing import Annotated, Any, Final

import psycopg
import typer

from connectors.capture import Capture
from connectors.errors import NothingToRepairError
from connectors.repair import RepairOrder, RepairPlan, RepairReceipt, RepairTools, plan, run
from streams.cli import terminal
from streams.cli.audit_open import read_floor
from streams.cli.capture_access import Reach, capture_of, sources
from streams.cli.database import Connection, connected, row
from streams.cli.errors import UsageProblemError
from streams.cli.options import Dir, Json, Yes, instant_option
from streams.cli.stack import resolve
from streams.core.instant import MINUTE_US, wire_text

MARGIN_US: Final = 15 * MINUTE_US
"""A run takes a while, and the oldest that may be sent again moves on meanwhile."""

_QUESTION: Final = "Stop the connector, replace its position and slot, and send these rows again?"


def repair_command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    reason: Annotated[
        str, typer.Option(help="Why; it is kept with the re-emission.", show_default=False)
    ],
    directory: Dir = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TS",
            help="Send again what was received from here on; default: all that is not sealed.",
        ),
    ] = None,
    accept_identity: Annotated[
        bool,
        typer.Option(
            "--accept-identity", help="This database is the source from now on (restore, failover)."
        ),
    ] = False,
    even_if_healthy: Annotated[
        bool,
        typer.Option("--even-if-healthy", help="Although the guard refuses nothing: duplicates."),
    ] = False,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn", help="A login that may make slots; else the sandbox's or the worker's."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The host as Connect sees it.")] = None,
    port: Annotated[int | None, typer.Option(help="The port as Connect sees it.")] = None,
    ssl_mode: Annotated[
        str | None, typer.Option("--ssl-mode", help="verify-full unless a sandbox.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Makes a lost, advanced or foreign slot good: a new one, and the rows of the gap sent again.

    Shows what the guard refuses and each step first. Rows that had arrived are duplicates and count
    nothing. A run that breaks off leaves the connector stopped and is simply run again. Exit 0 when
    repaired or nothing is to repair, 75 when it cannot go on now.
    """
    stack = resolve(directory)
    source_dsn = stack.need("source_dsn", "ledger_dsn", "connect_url").source_dsn
    operating = dsn or stack.admin_dsn("outbox")
    with connected(source_dsn, "the service's database") as source:
        from_us = _begin(source, instant_option("--from", begin))
    order = RepairOrder(from_us, reason, accept_identity, even_if_healthy)
    with (
        sources(stack) as store,
        capture_of(stack, Reach(host=host, port=port, ssl_mode=ssl_mode)) as capture,
    ):
        planned = _planned(capture, order, as_json=as_json)
        if planned is None:
            return
        terminal.confirm(_QUESTION, yes=yes, command="tailrace connector repair …")
        tools = RepairTools(store, lambda: psycopg.connect(operating, autocommit=True))
        receipt = run(capture, order, tools)
    if as_json:
        terminal.emit_json(_document(planned, receipt))
        return
    terminal.data(f"new slot from {receipt.slot_lsn} on")
    begun = wire_text(receipt.from_us)
    terminal.data(f"{receipt.rows} rows sent again, received from {begun} on")
    terminal.data(f"{capture.name}: {receipt.status}")
    terminal.say("next: `tailrace audit`, until it says lost 0")


def _begin(source: Connection, asked_us: int | None) -> int:
    """Where to begin so that nothing is missed: rows without a seal, and rows yet to be committed.

    Raises:
        UsageProblemError: asked for more than may be sent again.
    """
    found = row(source, "repair_range")
    oldest_us = int(found["oldest_us"]) + MARGIN_US
    if asked_us is not None:
        if asked_us < oldest_us:
            raise UsageProblemError(
                f"--from: must not lie before {wire_text(oldest_us)}: workers know older rows no "
                "more, and would send each to review",
                fix=f"`--from {wire_text(oldest_us)}`, and see what `tailrace audit` names then",
            )
        return asked_us
    floor_us = read_floor(source).us
    unsealed_us = floor_us if found["unsealed_us"] is None else int(found["unsealed_us"])
    return max(oldest_us, min(floor_us, unsealed_us))


def _planned(capture: Capture, order: RepairOrder, *, as_json: bool) -> RepairPlan | None:
    """The plan, shown; None where nothing is to repair, which is said."""
    try:
        planned = plan(capture, order)
    except NothingToRepairError as nothing:
        if as_json:
            terminal.emit_json(_document(RepairPlan((), (), order.from_us, None), None))
        else:
            terminal.data(str(nothing))
        return None
    for finding in planned.findings:
        terminal.say(f"refused now: {finding.rule}: {finding.evidence}")
    for number, step in enumerate(planned.steps, 1):
        terminal.say(f"plan {number}. {step}")
    return planned


def _document(planned: RepairPlan, receipt: RepairReceipt | None) -> dict[str, Any]:
    new = planned.new_identity
    return {
        "findings": [
            {"rule": finding.rule, "evidence": finding.evidence} for finding in planned.findings
        ],
        "steps": list(planned.steps),
        "new_identity": None
        if new is None
        else {"cluster": new.system_identifier, "timeline": new.timeline},
        "done": None
        if receipt is None
        else {
            "slot_lsn": receipt.slot_lsn,
            "from": wire_text(receipt.from_us),
            "to": wire_text(receipt.to_us),
            "rows": receipt.rows,
            "state": receipt.status.state,
        },
    }
