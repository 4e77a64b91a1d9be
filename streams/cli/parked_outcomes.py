"""One open parked item → what can be decided on it: commands, and what each would do."""

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from streams.cli.document import instant_text
from streams.cli.parked_versions import Version
from streams.core.quantity import from_units
from streams.core.remedy import remedy

Row = dict[str, Any]
Outcome = tuple[str, str]
"""A command, and what it would do."""


def outcomes_of(parked: Row, attempts: list[Row], versions: list[Version]) -> Iterator[Outcome]:
    """What can be decided on an open item."""
    if parked["state"] != "open":
        return
    if parked["kind"] == "dead":
        yield from _dead_outcomes(parked, attempts)
    elif parked["reason"] == "conflict":
        yield from _conflict_outcomes(parked, versions)
    elif parked["reason"] == "past_deadline":
        yield from _overdue_outcomes(parked)
    else:
        yield from _review_outcomes(parked)


def _review_outcomes(parked: Row) -> Iterator[Outcome]:
    number = parked["parked_id"]
    end = "--reason … --yes"
    if parked["units"] is not None and parked["window_start_us"] is not None:
        before = int(parked["window_units"])
        proof = " --proof …" if parked["reason"] == "beyond_horizon" else ""
        command = f"tailrace review approve {number}{proof}"
        grows = f"its window comes to {before} → {before + int(parked['units'])}"
        deadline = instant_text(parked["deadline_us"])
        if parked["period_units"] is not None:
            after = int(parked["period_units"]) + int(parked["units"])
            if int(parked["units"]) < 0 and after < 0:
                yield (
                    f"tailrace review reject {number} {end}",
                    f"reject: its period would come to {after}, which is never billed; at most "
                    f"-{max(int(parked['period_units']), 0)} can be corrected",
                )
                return
            if parked["four_eyes"]:
                grows += ", once two logins have approved it"
        if parked["closed"]:
            yield (
                f"{command} --into own {end}",
                f"approve: {grows}; its invoice is closed, the meter's carry decides",
            )
            yield (
                f"{command} --into carry {end}",
                f"approve: {parked['units']} units more in the open period",
            )
        else:
            bound = f", for the invoice until {deadline}" if deadline else ""
            yield f"{command} {end}", f"approve: {grows}{bound}"
    yield f"tailrace review reject {number} {end}", "reject: it is never billed"


def _overdue_outcomes(parked: Row) -> Iterator[Outcome]:
    """An amount that is in the books already and missed its invoice."""
    number = parked["parked_id"]
    yield (
        f"tailrace review approve {number} --reason … --yes",
        f"approve: {parked['units']} units move from the closed period into the open one",
    )
    yield (
        f"tailrace review reject {number} --reason … --yes",
        "reject: the amount leaves the closed period and is billed nowhere by Stripe",
    )


def _conflict_outcomes(parked: Row, versions: list[Version]) -> Iterator[Outcome]:
    number = parked["parked_id"]
    first = next((v for v in versions if v.counted and v.units is not None), None)
    if parked["units"] is not None and parked["window_start_us"] is not None:
        delta, scale = "…", parked["scale"] or 0
        if first is not None and first.units is not None:
            delta = from_units(int(parked["units"]) - first.units, scale)
        yield (
            f"tailrace correct --tenant {_typed(parked['tenant_id'])} --metric "
            f"{_typed(parked['metric'])} --window {instant_text(parked['window_start_us'])} "
            f"--delta {delta} --key conflict-{number} --reason … --yes",
            "take this version: correct by the difference, then reject the item",
        )
    yield (
        f"tailrace review reject {number} --reason … --yes",
        "reject: what was counted first stays, this version is never billed",
    )


def _dead_outcomes(parked: Row, attempts: list[Row]) -> Iterator[Outcome]:
    number, last = parked["parked_id"], (attempts[-1] if attempts else {})
    # What Stripe took back was recorded by its last attempt: only the report has a code.
    reported = [rejection["code"] for rejection in told(parked, "rejections")]
    code = reported[-1] if reported else last.get("code")
    if parked["meter_event_id"] is None:
        code = msgspec.json.decode(parked["detail"]).get("path")
    advice = remedy(parked["reason"], code, last.get("outcome"))
    if parked["meter_event_id"] is None:
        yield f"tailrace review reject {number} --reason … --yes", advice
        return
    if parked["course"] == "too_old":
        yield from _too_old_outcomes(parked)
        return
    proof = " --proof …" if parked["course"] == "doubtful" else ""
    yield f"tailrace dead redrive {number}{proof} --reason … --yes", advice
    # A correction ends none that Stripe may hold: it would wait behind it.
    if parked["course"] in {"resend", "supersede"} and not parked["doubtful"]:
        yield _opposite(parked, "or never bill it", "")


def _too_old_outcomes(parked: Row) -> Iterator[Outcome]:
    """Stripe takes nothing of its date any more; the open period can bill the same amount."""
    yield _opposite(parked, "take it out of its own window", " --into own")
    yield (
        f"{_target(parked)} --key dead-{parked['parked_id']}-in --into carry --reason … --yes",
        f"and bill it in the open period: {int(parked['units']):+d} units",
    )


def _opposite(parked: Row, what: str, into: str) -> Outcome:
    """What takes a dead amount back ends the item with it."""
    return (
        f"{_target(parked)} --key dead-{parked['parked_id']}-out{into} --reason … --yes",
        f"{what}, which resolves this item: {-int(parked['units']):+d} units",
    )


def _target(parked: Row) -> str:
    return (
        f"tailrace correct --tenant {_typed(parked['tenant_id'])} --metric "
        f"{_typed(parked['metric'])} --window {instant_text(parked['window_start_us'])} --delta …"
    )


def _typed(name: str | None) -> str:
    """A name as a shell takes it; what is not known is left to whoever types."""
    return shlex.quote(name) if name else "…"


def told(parked: Row, name: str) -> list[Row]:
    """A list of the evidence: the `entries` of a request, or the `rejections` that took it back."""
    detail = msgspec.json.decode(parked["detail"])
    return list(detail.get(name, [])) if isinstance(detail, dict) else []
