"""What people decided and ordered, held against what the ledger made of it."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from tests.simulation.operator import Pause
from tests.simulation.oracle import Violation
from tests.simulation.rules import LIMIT, RULES
from tests.simulation.world import World


def four_eyes(world: World) -> Iterator[Violation]:
    """A correction that one person let through, although it is more than one may do alone."""
    alone: Counter[tuple[str, str, object]] = Counter()
    for entry in world.database.tables.entries:
        logins = world.operator.finance.logins.get(entry.event_id or "")
        if entry.kind != "correction" or logins is None:
            continue
        at = entry.tenant_id, entry.metric, _period(world, entry.start_us)
        together = entry.delta + alone[at]
        if len(logins) > 1:
            continue
        alone[at] = together
        if max(abs(entry.delta), abs(together)) > LIMIT:
            yield Violation("four_eyes", f"entry {entry.entry_id} of {entry.delta} units: {logins}")


def _period(world: World, at_us: int) -> object:
    cycle = world.database.tables.cycle
    if cycle is not None:
        return (at_us - cycle.anchor_us) // cycle.length_us
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m")


def unpaused(world: World) -> Iterator[Violation]:
    """A lane that was lent while somebody had ordered that it is not."""
    for at_us, customer, event_name in world.database.lent_to:
        for pause in world.operator.pauses:
            ended_us = pause.until_us
            during = pause.from_us < at_us and (ended_us is None or at_us < ended_us)
            if during and _concerns(world, pause, customer, event_name):
                said = f"{pause.scope} {pause.subject}"
                yield Violation("unpaused", f"{event_name} of {customer} was lent: {said}")


def _concerns(world: World, pause: Pause, customer: str, event_name: str) -> bool:
    match pause.scope:
        case "all":
            return True
        case "meter":
            return event_name in {rule.name for rule in RULES[pause.subject]}
        case _:
            return customer in {c for tenant, _, c in world.mapped if tenant == pause.subject}
