"""A correction's preview, as lines and as JSON: amounts, Stripe, deadline, limit."""

import shlex
from collections.abc import Iterator
from typing import Any

from streams.cli import terminal
from streams.cli.correct_target import Wanted
from streams.cli.document import instant_text
from streams.core.instant import HOUR_US
from streams.core.quantity import from_units

Plan = dict[str, Any]


def lines(wanted: Wanted, plan: Plan, reason: str | None) -> list[str]:
    """The preview for people."""
    return terminal.table(("", ""), list(_facts(wanted, plan, reason)))[1:]


def _facts(wanted: Wanted, plan: Plan, reason: str | None) -> Iterator[tuple[str, str]]:
    meant, starts = plan["meant_start_us"], plan["window_start_us"]
    yield "correction", f"{wanted.key}, by {plan['actor']}" + (f": {reason}" if reason else "")
    amount = f"{wanted.units:+d} units of {wanted.metric} for {wanted.tenant}"
    if plan["scale"]:
        amount += f" ({from_units(wanted.units, plan['scale'])})"
    yield "amount", amount
    if plan["entry_id"] is not None:
        yield "window", f"from {instant_text(meant)}"
        return
    moved = "" if starts == meant else f", carried from {instant_text(meant)}"
    ends = instant_text(plan["window_end_us"])
    yield "window", f"{instant_text(starts)} to {ends}{moved}: {_moves(wanted, plan, 'window')}"
    period = f"{instant_text(plan['period_from_us'])} to {instant_text(plan['period_to_us'])}"
    yield "period", f"{period}: {_moves(wanted, plan, 'period')}"
    yield "Stripe", _stripe(wanted, plan)
    yield "deadline", _deadline(plan)
    yield "alone", _alone(wanted, plan)


def _moves(wanted: Wanted, plan: Plan, what: str) -> str:
    before = int(plan[f"{what}_before"])
    return f"{before} → {before + wanted.units} units"


def _stripe(wanted: Wanted, plan: Plan) -> str:
    if plan["customer"] is None:
        return (
            f"nothing yet: held until `tailrace customers map {shlex.quote(wanted.tenant)} cus_…`"
        )
    if _kept(plan):
        return "nothing yet: its invoice is closed, the meter's carry decides"
    waiting = int(plan["waiting_before"])
    beside = f", in one request with {waiting:+d} that wait" if waiting else ""
    return f"{plan['customer']}, {plan['event_name']} {wanted.units:+d}{beside}"


def _deadline(plan: Plan) -> str:
    if plan["deadline_us"] is None:
        return "none known: the customer's billing cycle is not mapped"
    left_us = plan["deadline_us"] - plan["now_us"]
    if left_us <= 0:
        return f"{instant_text(plan['deadline_us'])}, passed"
    return f"{instant_text(plan['deadline_us'])}, in {left_us / HOUR_US:.1f} h"


def _alone(wanted: Wanted, plan: Plan) -> str:
    used = int(plan["alone_before"])
    bound = f"{plan['limit_units']} units in the period"
    if plan["four_eyes"]:
        return f"no: more than {bound} ({used:+d} before); another login must approve"
    return f"yes: within {bound} ({used + wanted.units:+d} with this one)"


def _kept(plan: Plan) -> bool:
    """Whether the amount stays in a window whose own invoice is closed."""
    return bool(plan["closed"]) and plan["window_start_us"] == plan["meant_start_us"]


def say_resolved(items: list[int]) -> None:
    """The receipt of dead items that a booked correction ended."""
    for item in items:
        terminal.data(f"resolved: dead item {item}, whose amount it takes back")


def document(
    wanted: Wanted, plan: Plan, outcome: str, number: int | None, ended: list[int], *, done: bool
) -> dict[str, Any]:
    """The preview as JSON; with `done` the receipt, and the dead items that it resolved."""

    def sums(what: str) -> dict[str, str] | None:
        before = plan[f"{what}_before"]
        if before is None:
            return None
        return {"before": before, "after": str(int(before) + wanted.units)}

    return {
        "done": done,
        "outcome": outcome,
        "number": number,
        "resolved_items": ended,
        "key": wanted.key,
        "actor": plan["actor"],
        "tenant_id": wanted.tenant,
        "metric": wanted.metric,
        "units": str(wanted.units),
        "meant_window_start": instant_text(plan["meant_start_us"]),
        "window_start": instant_text(plan["window_start_us"]),
        "window_end": instant_text(plan["window_end_us"]),
        "window_units": sums("window"),
        "period_start": instant_text(plan["period_from_us"]),
        "period_end": instant_text(plan["period_to_us"]),
        "period_units": sums("period"),
        "customer": plan["customer"],
        "event_name": plan["event_name"],
        "sent": plan["customer"] is not None and not _kept(plan),
        "deadline_at": instant_text(plan["deadline_us"]),
        "limit_units": plan["limit_units"],
        "four_eyes": plan["four_eyes"],
    }
