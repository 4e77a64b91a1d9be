"""`tailrace audit`: registry = ledger = Stripe, or exactly what is not equal."""

import asyncio
import time
from typing import Annotated, Final
from uuid import uuid4

import msgspec
import typer

from streams.adapters.clock import SystemClock
from streams.cli import terminal
from streams.cli.audit_ledger import check_ledger
from streams.cli.audit_registry import Waiting, compare
from streams.cli.audit_report import AuditReport, StripePart
from streams.cli.audit_span import Span, begin_us
from streams.cli.audit_stripe import HOUR_S, Cells, Hour, Limits, Settled, compare_stripe
from streams.cli.database import Connection, connected, ledger_rows, row, rows
from streams.cli.errors import FINDING, TryAgainError
from streams.cli.held import held_partitions
from streams.cli.options import Dir, Json, duration_option
from streams.cli.reconcile_run import REACH_DAYS
from streams.cli.reconcile_stripe import DAY_S
from streams.cli.stack import Stack, resolve
from streams.core.instant import SECOND_US

RESEND: Final = (
    "what is lost is recorded in the outbox: `tailrace connector repair` sends it again, "
    "--even-if-healthy where the guard sees nothing any more; copies count nothing"
)
UNPROVEN: Final = (
    "not proven: {count} recorded without a verdict may be as many verdicts without a record. If "
    "the service's database was restored, let it record again all that it lost, under the same "
    "keys (nothing is billed twice), then audit again. What is lost even then, or without a "
    "restore, `tailrace connector repair` sends again"
)
app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def audit(
    directory: Dir = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only what was received in the last 24h, 7d, …"),
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=1, help="Longest wait for the canaries, seconds.")
    ] = 60.0,
    stripe: Annotated[
        bool | None,
        typer.Option(
            "--stripe/--no-stripe", help="Compare with Stripe's sums; default: on in a sandbox."
        ),
    ] = None,
    open_max: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="A transaction open for longer is told when it keeps minutes from being sealed.",
        ),
    ] = "5m",
    as_json: Json = False,
) -> None:
    """Prove it: registry = ledger = Stripe; exit 1 on any difference.

    Sends a canary through every partition and waits for it, so whatever is in flight is never
    called lost. Minutes that are equal and over are sealed: only those may retention drop. A held
    partition is a finding too; what waits there is not judged. Records that a person decided to
    skip are listed; what is lost because of that says so, until somebody says which usage it was
    (`tailrace held name`): it is skipped then, not billed, and not lost.

    Compared are identities, digests of their contents, and units: what the registry adds up to for
    each tenant, metric and window, what the ledger counted or parked of it, what its requests say.
    Units are judged where the digest says that both sides mean the same events; usage on its way is
    never called wrong. While any differ nothing is sealed. `tailrace statement` lists the events.
    """
    stack = resolve(directory)
    stack.need("source_dsn", "ledger_dsn")
    since_us = duration_option("--since", since, "24h")
    open_us_max = duration_option("--open-max", open_max, "5m") or 0
    progress = terminal.Progress()
    clock = SystemClock()
    waiting = Waiting(time.sleep, clock.elapsed_s, wait_s, progress.show)
    with (
        connected(stack.settings.source_dsn, "the service's database") as source,
        connected(stack.settings.ledger_dsn, "the ledger") as ledger,
    ):
        _refuse_while_lost(ledger)
        name = row(source, "source_name")["source"]
        from_us = begin_us(clock.now_us(), since_us)
        span, held = Span(name, from_us, open_us_max), held_partitions(stack.facts)
        registry = compare(source, ledger, span, uuid4(), waiting, held)
        progress.clear()
        own = check_ledger(ledger, name)
        theirs = _compare_stripe(stack, ledger, stripe, from_us, clock.now_us())
        report = AuditReport(
            name,
            None if since_us is None else from_us,
            clock.now_us(),
            registry,
            own,
            theirs,
            registry.skipped,
        )
        _note(ledger, report)
    _show(report, as_json=as_json)
    if report.findings:
        raise typer.Exit(FINDING)


def _refuse_while_lost(ledger: Connection) -> None:
    """A ledger that went back is told nothing, so no canary would arrive."""
    if any(halt["kind"] == "ledger_went_back" for halt in rows(ledger, "active_halts")):
        raise TryAgainError(
            "the ledger went back in time, so nothing can be judged yet",
            fix="`tailrace ledger adopt`, then audit again",
        )


def _compare_stripe(
    stack: Stack, ledger: Connection, wanted: bool | None, from_us: int, now_us: int
) -> StripePart | None:
    if not (stack.is_sandbox if wanted is None else wanted):
        return None
    settings = stack.need("stripe_api_base", "stripe_api_key")
    now_s, from_s = now_us // SECOND_US, max(0, from_us // SECOND_US)
    # Stripe takes nothing dated further back, so nobody else can have written there lately.
    reach_s = max(from_s, now_s - REACH_DAYS * DAY_S)
    span = range(reach_s - reach_s % HOUR_S, now_s - now_s % HOUR_S + HOUR_S)

    def read() -> Cells:
        return {
            Hour(r["customer"], r["event_name"], r["hour_s"]): Settled(r["units"], r["doubtful"])
            for r in rows(ledger, "settled_hours", {"from_s": from_s - from_s % HOUR_S})
        }

    return asyncio.run(compare_stripe(settings, read, span, Limits()))


def _note(ledger: Connection, report: AuditReport) -> None:
    """The age of the last audit is what an alert looks at, so each one leaves its trace."""
    detail = {
        "lost": report.lost,
        "double": report.double,
        "skipped": report.skipped + report.named,
        "findings": len(report.findings),
        "sealed": report.registry.sealed_now,
        "unsealed": len(report.registry.unsealed),
    }
    values = {"source": report.source, "detail": msgspec.json.encode(detail).decode()}
    ledger_rows(ledger, "audit_note", values)


def _show(report: AuditReport, *, as_json: bool) -> None:
    if as_json:
        terminal.emit_json(report.document())
        return
    terminal.show_table(("source", report.source, ""), report.rows())
    for minute in report.registry.open_minutes:
        for holder in minute.holders:
            terminal.say(f"open minute held by {holder}")
    for blocker in report.registry.holders:
        age = terminal.age(blocker.age_us / SECOND_US)
        terminal.data(f"not sealed: {blocker}, for {age}; {blocker.fix}")
    for record in report.skipped_records:
        terminal.data(str(record))
    for finding in report.findings:
        terminal.data(f"{finding.kind}: {finding.text}")
    terminal.data(report.verdict)
    for remark in _remarks(report):
        terminal.say(remark)


def _remarks(report: AuditReport) -> list[str]:
    """What can be done about what is lost."""
    remarks = [
        "a lost one that this record was is named by `tailrace held name "
        f"{record.partition} {record.offset} --tenant … --event-key …`"
        for record in report.nameable
    ]
    unexplained = (
        finding.kind in {"lost", "mixed"} and finding.lost > finding.skipped
        for finding in report.findings
    )
    if not any(unexplained):
        return remarks
    if perhaps := report.registry.perhaps_again:
        remarks.append(UNPROVEN.format(count=perhaps))
    return [*remarks, RESEND] if report.lost > perhaps else remarks


APPS = {"audit": app}
