"""What audits said while the world went on, held against what was true."""

from collections.abc import Iterator
from typing import Final

from tests.simulation.oracle import Violation
from tests.simulation.world import World

EXPLAINED: Final = frozenset({"clocks_step", "emitted_again", "ledger_restored"})
"""What an audit rightly finds something of: a database whose clock went back writes into sealed
minutes, rows that go out long after are judged again, and a restored ledger lacks verdicts."""


def audited(world: World) -> Iterator[Violation]:
    """A finding although nothing was lost and nothing was made up."""
    if world.audits is not None and not EXPLAINED & set(world.faults):
        for finding in world.audits.findings:
            yield Violation("audit", finding)
