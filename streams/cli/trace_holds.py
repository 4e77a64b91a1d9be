"""Trace, why it waits: what is known of an amount that is not settled → every cause that holds it.

All of them, in the order in which they have to go: who mends the first alone would find the next.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streams.core.instant import wire_text
from streams.core.live_meter import CHECKS, MEANING
from streams.core.risk import is_down
from streams.core.standing import Sink, Standing

Row = Mapping[str, Any]
CARRY: Final = "tailrace carry list"


class Hold(NamedTuple):
    """One cause."""

    cause: str
    """A word for programs; never changes its meaning."""
    text: str
    command: str
    """What to type; empty where nothing but time is needed."""

    def __str__(self) -> str:
        return f"{self.text}: `{self.command}`" if self.command else self.text


@dataclass(frozen=True, slots=True)
class HoldFacts:
    """What the ledger says about amounts that are not settled."""

    tenant_id: str
    now_us: int
    levels: Sequence[Row] = ()
    """Readings of the window; one with `due_us` is not cut yet."""
    waiting: Sequence[Row] = ()
    """Entries that no request covers."""
    requests: Sequence[Row] = ()
    """Meter events that cover entries, settled ones too."""
    lanes: Sequence[Row] = ()
    pauses: Sequence[Row] = ()
    halts: Sequence[Row] = ()
    dead: Sequence[Row] = ()
    meters: Sequence[Row] = ()
    """What is wrong with the meter at Stripe."""
    sink: Sink = field(default_factory=Sink)

    @property
    def unsettled(self) -> bool:
        """Whether anything of it is still to be sent, or to be known."""
        open_requests = any(each["state"] in {"pending", "ambiguous"} for each in self.requests)
        return open_requests or bool(self.waiting or self.levels_due)

    @property
    def levels_due(self) -> list[Row]:
        """Readings of which an entry is still to be cut."""
        return [level for level in self.levels if level["due_us"] is not None]


def holds(facts: HoldFacts) -> tuple[Hold, ...]:
    """Every cause that holds the amount now."""
    parts = [*_dead(facts), *_meter(facts)]
    if facts.unsettled:
        parts = [
            *_halted(facts), *_level_held(facts), *_unmapped(facts), *_overdue(facts),
            *_doubted(facts), *_paused(facts), *_stopped(facts), *_sink(facts), *_behind(facts),
            *_not_due(facts), *parts,
        ]  # fmt: skip
        if not parts:
            parts = [Hold("turn", "its request is made when its lane's turn comes", "")]
    return tuple(parts)


def _halted(facts: HoldFacts) -> Iterator[Hold]:
    for halt in facts.halts:
        command = (
            "tailrace ledger adopt" if halt["kind"] == "ledger_went_back" else "tailrace audit"
        )
        yield Hold("halted", f"publishing stands still for all: {halt['kind']}", command)


def _level_held(facts: HoldFacts) -> Iterator[Hold]:
    if any(level["held"] for level in facts.levels):
        text = "the window is held, its readings contradict each other"
        yield Hold("level_held", text, "tailrace findings list")


def _unmapped(facts: HoldFacts) -> Iterator[Hold]:
    if any(each["lane_id"] is None for each in facts.waiting):
        tenant = shlex.quote(facts.tenant_id)
        text = "no customer is mapped for the tenant"
        yield Hold("unmapped", text, f"tailrace customers map {tenant} cus_…")


def _overdue(facts: HoldFacts) -> Iterator[Hold]:
    missed = [each for each in facts.waiting if _is_past(each["deadline_us"], facts.now_us)]
    if missed:
        when = wire_text(min(each["deadline_us"] for each in missed))
        yield Hold("overdue", f"it missed its invoice, which closed for it at {when}", CARRY)


def _is_past(deadline_us: int | None, now_us: int) -> bool:
    return deadline_us is not None and deadline_us <= now_us


def _doubted(facts: HoldFacts) -> Iterator[Hold]:
    if any(each["doubted"] for each in facts.waiting):
        text = "the ledger was adopted, so its hour is compared with Stripe first"
        yield Hold("to_compare", text, "tailrace reconcile")


def _paused(facts: HoldFacts) -> Iterator[Hold]:
    for pause in facts.pauses:
        everything = pause["scope"] == "all"
        what = "everything" if everything else f"{pause['scope']} {pause['subject']}"
        option = "--all" if everything else f"--{pause['scope']} {shlex.quote(pause['subject'])}"
        text = f"{what} is paused by {pause['by']} since {wire_text(pause['since_us'])}"
        command = f'tailrace resume {option} --reason "…"'
        yield Hold("paused", f"{text}, because: {pause['reason']}", command)


def _stopped(facts: HoldFacts) -> Iterator[Hold]:
    for lane in facts.lanes:
        if lane["paused"]:
            text = (
                f"its lane {lane['lane_id']} ({lane['customer']}, {lane['event_name']}) is stopped"
            )
            command = f'tailrace resume --lane {lane["lane_id"]} --reason "…"'
            yield Hold("lane_stopped", f"{text}, because: {lane['pause_reason']}", command)


def _sink(facts: HoldFacts) -> Iterator[Hold]:
    if not is_down(Standing(sink=facts.sink)):
        return
    said = facts.sink.cause or "no answer"
    if facts.sink.refused:
        yield Hold("key_refused", f"Stripe refuses the key ({said})", "tailrace doctor stripe-key")
        return
    text = f"Stripe is down ({said}); it is sent by itself once that is over, if in time"
    yield Hold("sink_down", text, "tailrace deadlines")


def _behind(facts: HoldFacts) -> Iterator[Hold]:
    for lane in facts.lanes:
        if lane["doubts"]:
            text = f"{lane['doubts']} requests of its lane are in doubt; workers ask Stripe again"
            yield Hold(
                "in_doubt", f"{text}, after 23 h only its sums can tell", "tailrace reconcile"
            )


def _not_due(facts: HoldFacts) -> Iterator[Hold]:
    later = [each["due_us"] for each in (*facts.levels_due, *facts.waiting)]
    later = [due_us for due_us in later if due_us is not None and due_us > facts.now_us]
    if later:
        yield Hold("not_due", f"it is not due before {wire_text(min(later))}, nothing to do", "")


def _dead(facts: HoldFacts) -> Iterator[Hold]:
    for item in facts.dead:
        text = f"its request {item['meter_event_id']} is dead, {item['reason']}"
        yield Hold("dead", text, f"tailrace dead show {item['parked_id']}")


def _meter(facts: HoldFacts) -> Iterator[Hold]:
    for meter in facts.meters:
        means = MEANING.get(meter["kind"], "what is sent to it is not billed as it must be")
        text = f"the meter {meter['event_name']} at Stripe: {meter['rule']}; {means}"
        command = f"tailrace doctor {CHECKS.get(meter['kind'], '')}".rstrip()
        yield Hold("meter_wrong", text, command)
