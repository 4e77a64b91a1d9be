"""`tailrace reconcile`: the ledger against Stripe's own sums, and what they prove settled.

A plan by default. Each run notes what Stripe said of cells in doubt, so a later run can see that a
sum stood still; with --yes what is proven is written down and what is missing is sent, as one meter
event a cell. What nothing here explains is reported and never touched.
"""

from datetime import datetime
from typing import Annotated, Any

import typer

from streams.cli import terminal
from streams.cli.database import connected, reconcile_rows
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.options import Dir, Json, Yes
from streams.cli.reconcile_plan import plain, summary
from streams.cli.reconcile_run import (
    Asked,
    Comparison,
    compare_cells,
    origin_of,
    reach_of,
    settle,
    take_back,
)
from streams.cli.reconcile_stripe import DAY_S, day_of
from streams.cli.stack import resolve
from streams.core.instant import SECOND_US, to_us, wire_text
from streams.core.meter_event import UnsendableMeterEventError
from streams.core.reconcile import Settle, TakeBack

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def reconcile(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    directory: Dir = None,
    customer: Annotated[str | None, typer.Option(help="Only this Stripe customer's.")] = None,
    meter: Annotated[
        str | None, typer.Option(metavar="EVENT_NAME", help="Only this meter's.")
    ] = None,
    from_text: Annotated[
        str | None, typer.Option("--from", metavar="TS", help="From this UTC day on; default: 35d.")
    ] = None,
    to_text: Annotated[
        str | None, typer.Option("--to", metavar="TS", help="Up to the end of this UTC day.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; needed with --yes.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Compares the ledger with Stripe's sums; exit 1 when something is there that nobody explains.

    Asked are 35 days of every customer and meter that this ledger ever billed, as far as the
    monthly allowance of reads goes; what somebody else writes to other customers is not seen.

    Amounts whose answers were lost are settled by Stripe's sums alone: once they stood still for
    the ledger's setting `reconcile_still`, --yes --reason writes down what is there and sends what
    is missing. What Stripe confirmed, and then rejected without naming it, is taken back in the
    same way: as many requests as add up to it become dead letters, to be redriven. Everything else
    is only reported.

    What is missing where the invoice has closed is not sent: it waits apart from what is there, to
    be carried to the next invoice or closed elsewhere: tailrace carry list, then carry apply.
    """
    stack = resolve(directory)
    settings = stack.need("ledger_dsn", "stripe_api_base", "stripe_api_key")
    if yes and not (reason or "").strip():
        raise UsageProblemError(
            "--reason: settling needs one", fix="`tailrace reconcile --yes --reason 'why now'`"
        )
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        limits = reconcile_rows(ledger, "limits")[0]
        asked = Asked(customer, meter, _span(from_text, to_text, limits["now_us"]))
        comparison = compare_cells(ledger, settings, asked, limits)
        if yes:
            origin = origin_of(settings, limits["ledger_id"])
            for line in comparison.lines:
                if isinstance(line.decision, TakeBack):
                    line.outcome = take_back(ledger, line, line.decision, reason or "")
                if not isinstance(line.decision, Settle):
                    continue
                try:
                    line.outcome = settle(ledger, line, line.decision, origin, reason or "")
                except UnsendableMeterEventError as error:
                    terminal.say(f"not settled: {line.subject}: {error}")
    _show(comparison, as_json=as_json, acted=yes)
    if comparison.findings:
        raise typer.Exit(FINDING)


def _span(from_text: str | None, to_text: str | None, now_us: int) -> range:
    reach = reach_of(now_us)
    start_s, end_s = reach.start, reach.stop
    if from_text is not None:
        start_s = _day("--from", from_text)
    if to_text is not None:
        end_s = _day("--to", to_text) + DAY_S
    if end_s <= start_s:
        raise UsageProblemError("--to: lies before --from", fix="exchange them")
    return range(start_s, end_s)


def _day(option: str, text: str) -> int:
    try:
        at_us = to_us(datetime.fromisoformat(text if "T" in text else f"{text}T00:00:00Z"))
    except ValueError as error:
        raise UsageProblemError(
            f"{option}: {text!r} is no day and no instant with a time zone",
            fix=f"`{option} 2026-11-30`",
        ) from error
    return day_of(at_us)


def _show(comparison: Comparison, *, as_json: bool, acted: bool) -> None:
    if as_json:
        terminal.emit_json(comparison.document())
        return
    heads = ("customer", "meter", "from", "class", "recorded", "in doubt", "held", "Stripe", "next")
    listed = [
        (
            line.key.customer,
            line.key.event_name,
            wire_text(line.key.start_s * SECOND_US)[:16],
            line.cell_class,
            line.side.figures.recorded,
            sum(event.units for event in line.side.figures.doubtful),
            line.side.figures.waiting,
            plain(line.observed),
            line.next_step,
        )
        for line in comparison.lines
    ]
    if listed:
        terminal.show_table(heads, listed)
    if acted:
        for receipt in comparison.receipts:
            terminal.data(_receipt_text(receipt))
    for pair in comparison.no_meter:
        terminal.data(f"{pair.customer} {pair.event_name}: Stripe has no active meter of that name")
    terminal.data(summary(comparison.equal_cells, comparison.lines, comparison.findings))
    if comparison.not_asked:
        terminal.say(
            f"{len(comparison.not_asked)} pairs of customer and meter were not asked: the reads of "
            "30 days are used up; name one with --customer and --meter, or raise "
            "TAILRACE_RECONCILE_READS"
        )
    _say_next(comparison, acted=acted)


def _say_next(comparison: Comparison, *, acted: bool) -> None:
    proven = sum(isinstance(line.decision, Settle | TakeBack) for line in comparison.lines)
    if proven and not acted:
        terminal.say(f"plan: {proven} cells can be settled")
        terminal.say("next: `tailrace reconcile --yes --reason '…'`")
    if any(line.outcome == "carried" for line in comparison.lines):
        terminal.say("next: `tailrace carry list`, then `tailrace carry apply ENTRY … --reason …`")


def _receipt_text(receipt: dict[str, Any]) -> str:
    """A cell that needs nothing more, because an earlier run settled it."""
    cell = f"{receipt['customer']} {receipt['event_name']} {wire_text(receipt['start_us'])[:16]}"
    sent = (
        ""
        if receipt["net_request"] is None
        else (f", meter event {receipt['net_request']} is {receipt['net_state']}")
    )
    return (
        f"unchanged: {cell} was settled by {receipt['actor']} at {wire_text(receipt['at_us'])}: "
        f"{receipt['reason']}; {receipt['present']} there, {receipt['absent']} absent, net "
        f"{int(receipt['net_units']):+d}{sent}"
    )


APPS = {"reconcile": app}
