"""The questions that Stripe answers at once, as experiments: a lab → what was answered.

In: a `Lab`. Out: a `Finding`; `holds` is None where an answer of either kind would be fine or none
came. Every probe uses customers of its own, so none sees what another has sent.
"""

import asyncio
from typing import Final

from streams.cli.stripe_finding import ENDS_AS_DEAD, UNKNOWN_CUSTOMER, Finding, row_said
from streams.cli.stripe_lab import Kept, Lab, Seen, plain, shown
from streams.core.live_meter import LiveMeter
from streams.core.observation import Answer

DAY_S: Final = 86_400
KEPT_MAX: Final = 20
AT_ONCE: Final = 5

VALUES: Final[tuple[tuple[str | None, bool], ...]] = (
    ("7", True),
    ("-7", True),
    ("1.5", True),
    ("999999999999999", True),
    ("9999999999999999", False),
    ("many", False),
    ("", False),
    (None, False),
)
"""Values, and whether the product expects them to count."""


def _refused_as_duplicate(answer: Answer, identifier: str) -> bool:
    return bool(shown(answer, identifier)["row"] == "duplicate")


async def identifier_horizon(lab: Lab) -> Finding:
    """Asks again what earlier runs sent, and leaves one more for later ones."""
    meter = await lab.meter()
    still_held: list[Kept] = []
    for kept in lab.kept:
        age_s = lab.now_s - kept.sent_at_s
        answer = await lab.send(meter, kept.customer, identifier=kept.identifier)
        if _refused_as_duplicate(answer, kept.identifier):
            lab.refused_until_s = max(age_s, lab.refused_until_s or 0)
            still_held.append(kept)
        elif answer.status == 200:
            known_s = lab.counted_from_s
            lab.counted_from_s = age_s if known_s is None else min(age_s, known_s)
    fresh = Kept(lab.name("kept"), meter.event_name, await lab.customer(), lab.now_s)
    await lab.send(meter, fresh.customer, identifier=fresh.identifier)
    lab.kept = [*still_held, fresh][-KEPT_MAX:]
    held_s, free_s = lab.refused_until_s, lab.counted_from_s
    said = f"refused after {_hours(held_s)}, counted again after {_hours(free_s)}"
    holds = None
    if free_s is not None and free_s < DAY_S:
        holds = False
    elif max(held_s or 0, free_s or 0) >= DAY_S:
        holds = True
    still = None if holds is not None and free_s else "run it again after a day, and after a week"
    return Finding({"refused_until_s": held_s, "counted_from_s": free_s}, said, holds, still)


def _hours(seconds: int | None) -> str:
    return "an unknown time" if seconds is None else f"{seconds / 3_600:.1f} h"


async def identifier_and_meter(lab: Lab) -> Finding:
    """One identifier on two meters."""
    first, second, customer = await lab.meter(), await lab.meter("b"), await lab.customer()
    return await _again(lab, (first, customer), (second, customer))


async def identifier_and_customer(lab: Lab) -> Finding:
    """One identifier for two customers."""
    meter = await lab.meter()
    return await _again(lab, (meter, await lab.customer()), (meter, await lab.customer()))


async def _again(lab: Lab, first: tuple[LiveMeter, str], second: tuple[LiveMeter, str]) -> Finding:
    identifier = lab.name("again")
    one = await lab.send(*first, identifier=identifier)
    other = await lab.send(*second, identifier=identifier)
    seen = {"first": shown(one, identifier), "second": shown(other, identifier)}
    said = "refused" if _refused_as_duplicate(other, identifier) else f"status {other.status}"
    return Finding(seen, said, holds=seen["second"]["row"] in {"duplicate", "recorded"})


async def unknown_customer(lab: Lab) -> Finding:
    """A customer nobody has made."""
    identifier = lab.name("nobody")
    answer = await lab.send(await lab.meter(), UNKNOWN_CUSTOMER, identifier=identifier)
    seen = shown(answer, identifier)
    return Finding(seen, row_said(seen), holds=seen["row"] in ENDS_AS_DEAD)


async def bad_value(lab: Lab) -> Finding:
    """Every kind of value."""
    meter, customer = await lab.meter(), await lab.customer()
    seen: Seen = {}
    surprises = []
    for value, expected in VALUES:
        identifier = lab.name("value")
        sent = await lab.send(meter, customer, value, identifier=identifier)
        answer = shown(sent, identifier)
        name = "missing" if value is None else value or "empty"
        seen[name] = answer
        # What is accepted although it should not be is taken back later: that is allowed.
        if answer["row"] not in ({"recorded"} if expected else ENDS_AS_DEAD):
            surprises.append(name)
    refused = [name for name, answer in seen.items() if answer["status"] != 200]
    said = f"refused at once: {', '.join(refused) or 'none'}"
    return Finding(seen, said, holds=not surprises)


async def same_lane(lab: Lab) -> Finding:
    """Several requests for one customer and meter at the same time."""
    meter, customer = await lab.meter(), await lab.customer()
    names = [lab.name("lane") for _ in range(AT_ONCE)]
    sent = await asyncio.gather(*(lab.send(meter, customer, identifier=name) for name in names))
    answers = [shown(answer, name) for answer, name in zip(sent, names, strict=True)]
    known = {"recorded", "throttled", "lane_busy", "key_in_use"}
    said = ", ".join(f"{answer['status']} {answer['row']}" for answer in answers)
    return Finding({"answers": answers}, said, holds={a["row"] for a in answers} <= known)


async def cancelled_identifier(lab: Lab) -> Finding:
    """Cancelled, and sent again."""
    meter, customer, identifier = await lab.meter(), await lab.customer(), lab.name("cancelled")
    await lab.send(meter, customer, identifier=identifier)
    cancelled = await lab.cancel(meter, identifier)
    again = shown(await lab.send(meter, customer, identifier=identifier), identifier)
    seen = {"cancelled": plain(cancelled), "again": again}
    return Finding(seen, row_said(again), holds=again["row"] in {"duplicate", "recorded"})


async def adjustment_errors(lab: Lab) -> Finding:
    """Cancellations that cannot be."""
    meter, customer, identifier = await lab.meter(), await lab.customer(), lab.name("twice")
    await lab.send(meter, customer, identifier=identifier)
    answers = {
        "unknown": await lab.cancel(meter, lab.name("unknown")),
        "first": await lab.cancel(meter, identifier),
        "second": await lab.cancel(meter, identifier),
    }
    said = ", ".join(f"{name} {answer.status}" for name, answer in answers.items())
    return Finding({name: plain(answer) for name, answer in answers.items()}, said)


async def refusal_cached(lab: Lab) -> Finding:
    """The same refused request twice under one key."""
    meter, customer = await lab.meter(), await lab.customer()
    key, identifier = lab.name("refused"), lab.name("refused")
    at_s = lab.now_s
    answers = []
    for _ in range(2):
        sent = await lab.send(meter, customer, "many", key=key, identifier=identifier, at_s=at_s)
        answers.append(shown(sent, identifier))
    kept = bool(answers[1]["replayed"])
    seen = {"kept": kept, "first": answers[0], "second": answers[1]}
    return Finding(seen, "kept" if kept else "not kept")
