"""Invoices held against what left for Stripe when, and what the ledger says of those that closed.

The periods are worked out here once more. What was on its way while its invoice closed, because its
sender slept between check and send, nobody can hold back: when it left is what counts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.oracle import Violation
from tests.simulation.rules import RULES, SINGLE
from tests.simulation.world import World

SECOND_US = 1_000_000


def closes_us(world: World, at_us: int) -> int:
    """When the invoice of an instant becomes final, by Stripe's clock."""
    cycle = world.database.tables.cycle
    assert cycle is not None
    periods = (at_us - cycle.anchor_us) // cycle.length_us + 1
    return cycle.anchor_us + periods * cycle.length_us + cycle.grace_us


def unbilled(world: World) -> Iterator[Violation]:
    """A request that left when its invoice was closed: Stripe takes it, and bills it nowhere."""
    if world.database.tables.cycle is None:
        return
    dated_s = {event.identifier: event.timestamp_s for event in world.stripe.memory.state.recorded}
    left: defaultdict[int, list[int]] = defaultdict(list)
    for _, attempt_id, at_us in world.stripe.left:
        left[attempt_id].append(at_us)
    for one in world.stripe.received:
        if one.recorded:
            left_us = max(at_us for at_us in left[one.attempt_id] if at_us <= one.at_us)
            late_us = left_us - closes_us(world, dated_s[one.identifier] * SECOND_US)
            if late_us >= 0:
                yield Violation("unbilled", f"{one.identifier} left {late_us} us too late")


def carried(world: World) -> Iterator[Violation]:
    """An amount that was carried twice, from an invoice that was open, or without its trace."""
    tables, cycle = world.database.tables, world.database.tables.cycle
    often = Counter(carry.entry_id for carry in tables.carries)
    for carry in tables.carries:
        entry, out = tables.entries[carry.entry_id - 1], tables.entries[carry.out_entry_id - 1]
        if often[carry.entry_id] > 1:
            yield Violation("carried", f"entry {carry.entry_id} {often[carry.entry_id]} times")
        single = entry.metric in SINGLE and entry.occurred_us is not None
        window_us = RULES[entry.metric][entry.version - 1].window_us
        last_us = entry.start_us + window_us - SECOND_US
        closing_us = closes_us(world, (entry.occurred_us or 0) if single else last_us)
        if cycle is None or carry.at_us < closing_us - cycle.margin_us:
            yield Violation("carried", f"entry {carry.entry_id} from an open invoice")
        put = None if carry.in_entry_id is None else tables.entries[carry.in_entry_id - 1]
        if out.delta != -entry.delta or (put is not None and put.delta != entry.delta):
            yield Violation("carried", f"entry {carry.entry_id} does not foot")
