"""People who let a topic grow: what they tell the ledger, and where canaries are sent then."""

from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Final

from streams import topics
from streams.core.growth import grown_log_id
from streams.core.identity import log_uuid
from streams.engine.partitioner import home_partition
from tests.simulation.broker import TOPIC_ID
from tests.simulation.service import CANARY

if TYPE_CHECKING:
    from tests.simulation.world import Machine, World

RESTART_S_MAX: Final = 1_800.0
MARGIN_MS: Final = 300_000


@cache
def canary_tenants(partitions: int) -> tuple[str, ...]:
    """A tenant at home on each partition, as the service's database finds them."""
    found: dict[int, str] = {}
    for number in count():
        tenant_id = f"{CANARY}.{number}"
        found.setdefault(home_partition(tenant_id.encode(), partitions), tenant_id)
        if len(found) == partitions:
            break
    return tuple(found[partition] for partition in range(partitions))


def tell_growth(world: "World") -> None:
    """Lets a ledger that does not know it hear that the topic grew; workers are started anew.

    Boundaries as the command finds them: the ends of the partitions there were, or, once the new
    ones hold something, all that came before a while after that.
    """
    tables, broker = world.database.tables, world.broker
    known = any(
        s.first_partition and s.partitions == broker.partitions for s in tables.spans.values()
    )
    if not broker.grew_at or world.database.away or known or not tables.logs:
        return
    logs, present = broker.logs[topics.EVENTS], len(broker.grew_at[0])
    first_ms = [log[0].timestamp_ms for log in logs[present:] if log]
    until_ms = min(first_ms) + MARGIN_MS if first_ms else 1 << 62
    boundaries = tuple(sum(r.timestamp_ms < until_ms for r in log) for log in logs[:present])
    root = log_uuid(TOPIC_ID)
    grown = grown_log_id(root, present, broker.partitions)
    if world.database.grow_log(root, grown, present, broker.partitions, boundaries):
        for machine in world.machines:
            world.later(world.rng.random() * RESTART_S_MAX, partial(_anew, world, machine))


def _anew(world: "World", machine: "Machine") -> None:
    if machine.worker is not None:
        machine.worker.kill()
    world.start(machine)
