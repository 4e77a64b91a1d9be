"""Bugs between the state and the ledger."""

from typing import Any, Final

import msgspec

from streams.adapters.ledger_facts import LedgerFacts
from streams.agents import facts
from streams.agents.memory import PartitionMemory
from streams.core.fact import Applied, FactBatch
from streams.engine.fence import Fence
from tests.simulation import feeder
from tests.simulation.ledger.facts import Facts
from tests.simulation.ledger.rows import Entry
from tests.simulation.mutants import Mutant, Patch
from tests.simulation.mutants.layers import begin_at_the_position, never_went_back

_apply_levels = Facts.apply_levels
_find_levels = Facts.find_levels


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


def _acknowledges_beyond(patch: Patch) -> None:
    def acknowledge(self: PartitionMemory, _position: int, told: Any, sent: Any) -> None:
        self.table.acknowledge(self.table.applied, sent)
        self.dirty.difference_update(told)

    patch.setattr(PartitionMemory, "acknowledge", acknowledge)


def _advances_first(patch: Patch) -> None:
    async def apply_facts(self: LedgerFacts, batch: FactBatch) -> Applied:
        where: dict[str, str | int] = {"log_id": batch.log_id, "partition": batch.partition}

        async def advance(conn: Any) -> int:
            await self._register(conn, batch)
            tail = {**where, "position": batch.position}
            return int(await self._sql.value(conn, "position_advance", tail))

        position = await self._pool.run(advance)
        findings = await self._pool.run(lambda conn: self._write(conn, batch, where))
        return Applied(position, findings)

    patch.setattr(LedgerFacts, "apply_facts", apply_facts)


def _takes_any_reading(patch: Patch) -> None:
    def apply_levels(self: Facts, log_id: str, partition: int, rows: str) -> int:
        for r in msgspec.json.decode(rows):
            known = self.tables.levels.get(_key(r, log_id))
            if known is not None:
                known.count = -1
        return _apply_levels(self, log_id, partition, rows)

    patch.setattr(Facts, "apply_levels", apply_levels)


def _takes_any_birth(patch: Patch) -> None:
    def as_known(self: Facts, log_id: str, rows: str) -> str:
        told = msgspec.json.decode(rows)
        for r in told:
            known = self.tables.levels.get(_key(r, log_id))
            if known is not None:
                r["birth"] = known.birth
        return msgspec.json.encode(told).decode()

    def apply_levels(self: Facts, log_id: str, partition: int, rows: str) -> int:
        return _apply_levels(self, log_id, partition, as_known(self, log_id, rows))

    def find_levels(self: Facts, log_id: str, partition: int, rows: str) -> int:
        return _find_levels(self, log_id, partition, as_known(self, log_id, rows))

    patch.setattr(Facts, "apply_levels", apply_levels)
    patch.setattr(Facts, "find_levels", find_levels)


def _key(r: dict[str, Any], log_id: str) -> Any:
    return r["tenant_id"], r["metric"], r["start_us"], r["version"], r["shard"], log_id


def _last_writer_wins(patch: Patch) -> None:
    patch.setattr(feeder, "newer", lambda _held, read: read)


def _asks_nobody(patch: Patch) -> None:
    async def ask(_self: Fence) -> None:
        """The partition counts as its own."""

    patch.setattr(Fence, "ask", ask)


def _enters_again(patch: Patch) -> None:
    def insert_entry(self: Facts, entry: Entry) -> int:
        entry.entry_id = len(self.tables.entries) + 1
        self.tables.entries.append(entry)
        return entry.entry_id

    patch.setattr(Facts, "insert_entry", insert_entry)


MUTANTS: Final = (
    Mutant(
        "told_before_acknowledged",
        "facts stay unsent until the ledger has confirmed them",
        _marks_first,
        ("lost", "identity_lost", "silent", "false_alarm"),
        ("ledger_away",),
        ("a ledger that knows less than it confirmed halts publishing",),
        never_went_back,
    ),
    Mutant(
        "acknowledged_beyond_what_was_told",
        "an answer of the ledger covers what its batch held, not what was settled meanwhile",
        _acknowledges_beyond,
        ("lost", "identity_lost", "silent"),
        ("answers_late",),
        ("a ledger that knows less than it confirmed halts publishing",),
        never_went_back,
    ),
    Mutant(
        "position_before_facts",
        "a position is in the transaction of the facts it stands for",
        _advances_first,
        ("lost", "identity_lost", "silent"),
        ("killed_after_telling",),
    ),
    Mutant(
        "level_without_count",
        "of two readings of a series the ledger keeps the one with the greater count",
        _takes_any_reading,
        ("lost", "ledger"),
        ("stopped_while_telling",),
    ),
    Mutant(
        "level_without_birth",
        "a reading that began elsewhere in the log is refused",
        _takes_any_birth,
        ("unseen",),
        ("machines_replaced",),
        ("state that does not reach back is refused",),
        begin_at_the_position,
    ),
    Mutant(
        "two_owners_without_guard",
        "of two readings in the packed log the one with the greater count is kept",
        _last_writer_wins,
        ("lost", "finding", "replay"),
        ("connect_killed", "stopped_with_verdicts", "machines_replaced"),
        ("a worker asks whether a partition is still its own",),
        _asks_nobody,
    ),
    Mutant(
        "entry_without_identity",
        "an event is one entry for ever, however often it is told",
        _enters_again,
        ("double", "settled"),
        ("ledger_answers_lost",),
    ),
)
