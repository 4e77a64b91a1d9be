"""A person's proof that Stripe lacks a request ↔ Stripe's own sum of the request's hour.

A request in doubt that gets a new identifier counts twice if Stripe holds the first one, and a
person reads sums wrongly sooner or later. So the sum is read again, right before.
"""

from typing import Any

from streams.cli.database import Connection, reconcile_rows
from streams.cli.errors import UsageProblemError
from streams.cli.reconcile_plan import Line, plain
from streams.cli.reconcile_run import Asked, compare_cells
from streams.cli.reconcile_stripe import DAY_S, day_of
from streams.cli.stack import Stack
from streams.core.instant import SECOND_US, wire_text
from streams.core.reconcile import Wait, has_room


def check_absent(ledger: Connection, stack: Stack, row: dict[str, Any]) -> str:
    """What Stripe's sum says of a dead request in doubt, where it does not speak against absence.

    Args:
        ledger: whose request it is.
        stack: how Stripe is reached.
        row: of the statement `redrive_selection`.

    Raises:
        UsageProblemError: the sum has room for the request, or there is none to read.
        StripeUnreadableError: Stripe was not reached or refused.
    """
    settings = stack.need("ledger_dsn", "stripe_api_base", "stripe_api_key")
    start_s = day_of(row["timestamp_s"] * SECOND_US)
    asked = Asked(row["customer"], row["event_name"], range(start_s, start_s + DAY_S))
    limits = reconcile_rows(ledger, "limits")[0]
    comparison = compare_cells(ledger, settings, asked, limits)
    found = (line for line in comparison.lines if _is_of(line, row["meter_event_id"]))
    line = next(found, None)
    number = row["parked_id"]
    if line is None:
        raise UsageProblemError(
            f"{number}: Stripe's sum of its hour could not be read, so nothing was changed",
            fix=f"`tailrace reconcile --customer {row['customer']}` says why",
        )
    why = unproven(line, comparison.at_us, comparison.still_us)
    if why:
        raise UsageProblemError(
            f"{number}: Stripe's sum of {line.subject} {why}; nothing was changed",
            fix="`tailrace reconcile` reads it again, and settles what it proves",
        )
    if has_room(line.side.figures, line.observed, row["meter_event_id"]):
        surplus = line.observed - line.side.figures.recorded
        raise UsageProblemError(
            f"{number}: Stripe's sum of {line.subject} is {plain(line.observed)}, {plain(surplus)} "
            f"beyond what it confirmed: it may well hold these {row['units']} units, so nothing "
            "was changed",
            fix="`tailrace reconcile` settles it by the sums; if somebody else wrote there, take "
            "that out at Stripe first",
        )
    return (
        f"Stripe's sum of {line.subject} is {plain(line.observed)}: it has no room for the "
        f"{row['units']} units of {number}"
    )


def unproven(line: Line, now_us: int, still_us: int) -> str:
    """Why the sum proves no absence: it may still grow, or the ledger forgot what it sent.

    Empty where it may prove one.
    """
    quiet_us = line.side.figures.quiet_from_us + still_us
    if line.side.figures.adopted:
        return "cannot tell its requests apart: the ledger went back, and the lost one sent others"
    if isinstance(line.decision, Wait):
        return f"proves nothing yet: {line.next_step}"
    if now_us < quiet_us:
        return (
            f"proves nothing yet: its last attempt is too young: not before {wire_text(quiet_us)}"
        )
    return ""


def _is_of(line: Line, meter_event_id: int) -> bool:
    return any(each.meter_event_id == meter_event_id for each in line.side.figures.doubtful)
