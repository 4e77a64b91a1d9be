"""Bugs between the state and the ledger."""

from typing import Final

from streams.agents import facts
from streams.agents.memory import PartitionMemory
from tests.simulation.mutants import Mutant, Patch

_send_one = facts.FactSender._send_one


def _marks_first(patch: Patch) -> None:
    async def send_one(self: facts.FactSender, memory: PartitionMemory) -> bool:
        collected, _ = facts.collect(memory)
        if collected is None:
            return False
        batch = collected.batch
        memory.acknowledge(batch.position, collected.told, collected.keys)
        await self._ledger.apply_facts(batch)
        return False

    patch.setattr(facts.FactSender, "_send_one", send_one)


MUTANTS: Final = (
    Mutant(
        "told_before_acknowledged",
        "facts stay unsent until the ledger has confirmed them",
        _marks_first,
        ("lost", "identity_lost", "silent", "false_alarm"),
        ("ledger_away",),
    ),
)
