"""Bugs in what people decide, and in ledgers that come back older."""

from typing import Any, Final

from streams.agents.attempt_memory import AttemptMemory
from streams.agents.memory import memories_of
from streams.app import Service
from streams.core import audit
from streams.core.audit import Judgment, Readings
from streams.engine.table import PartitionTable
from tests.simulation import operator
from tests.simulation.ledger.database import Database
from tests.simulation.ledger.lanes import Lanes
from tests.simulation.ledger.people import People
from tests.simulation.ledger.reconciling import Reconciling
from tests.simulation.ledger.rows import Entry, Tables
from tests.simulation.ledger.work_list import WorkList
from tests.simulation.mutants import Mutant, Patch
from tests.simulation.mutants.layers import (
    forget_approved_identities,
    never_went_back,
    remember_no_attempt,
)

_note = AttemptMemory.note
_restore = Database.restore
_correct = People.correct
_redrive = People.redrive
_open_item = People._open_item
_insert_entry = WorkList.insert_entry


def _remembers_on_each_machine(patch: Patch) -> None:
    patch.setattr(PartitionTable, "confirmed", PartitionTable.acknowledged)


def _keeps_positions_elsewhere(patch: Patch) -> None:
    def restore(self: Database, backup: Tables) -> None:
        positions = self.tables.positions
        _restore(self, backup)
        self.tables.positions = positions

    patch.setattr(Database, "restore", restore)


def _believes_without_memory(patch: Patch) -> None:
    async def stands(self: Service) -> bool:
        parts = self._running
        if not (parts.feeder.serving and parts.attempts.catch_up(parts.feeder)):
            return False
        return await parts.facts.check(memories_of(parts.feeder.tables.values()))

    patch.setattr(Service, "_ledger_stands", stands)


def _misses_nothing(patch: Patch) -> None:
    patch.setattr(AttemptMemory, "apart", False)


def _notes_its_own(patch: Patch) -> None:
    patch.setattr(AttemptMemory, "note", lambda self, _found="": _note(self))


def _adopts_without_doubt(patch: Patch) -> None:
    patch.setattr(Reconciling, "_doubt_adopted", lambda *_: None)


def _corrects_each_time(patch: Patch) -> None:
    said = 0

    def correct(self: People, tenant_id: str, metric: str, at_us: int, units: int, key: str) -> int:
        nonlocal said
        said += 1
        return _correct(self, tenant_id, metric, at_us, units, f"{key}-{said}")

    patch.setattr(People, "correct", correct)


def _approves_each_time(patch: Patch) -> None:
    approve = People.approve

    def opened(self: People, parked_id: int, login: str) -> int | None:
        item = self.tables.parked[parked_id - 1]
        if item.state == "approved":
            item.state = "open"
        return approve(self, parked_id, login)

    patch.setattr(People, "approve", opened)


def _approves_into_the_level(patch: Patch) -> None:
    def insert_entry(self: Any, entry: Entry) -> int:
        if entry.kind == "approval":
            for level in self.tables.levels.values():
                same = level.key[:3] == (entry.tenant_id, entry.metric, entry.start_us)
                if same and not level.held:
                    level.total += entry.delta
                    level.due_us = self.now_us
                    entry.delta = 0
                    break
        return int(_insert_entry(self, entry))

    patch.setattr(WorkList, "insert_entry", insert_entry)


def _sends_doubts_again(patch: Patch) -> None:
    def redrive(self: People, parked_id: int, *, proven: bool = False) -> None:
        item = self.tables.parked[parked_id - 1]
        if item.meter_event_id is not None and item.state == "open":
            m = self.meter_event(item.meter_event_id)
            if m.possibly_executed and m.rejected_us is None:
                item.state = "redriven"
                self.release([m])
                return
        _redrive(self, parked_id, proven=proven)

    patch.setattr(People, "redrive", redrive)


def _sends_again_what_another_ledger_may_have_sent(patch: Patch) -> None:
    patch.setattr(People, "awaits_sums", lambda *_: False)


def _believes_any_proof(patch: Patch) -> None:
    patch.setattr(operator, "has_room", lambda *_: False)


def _audits_by_one_snapshot(patch: Patch) -> None:
    judge = audit.judge

    def by_the_first(first: Readings, cells: Readings, _second: Readings) -> list[Judgment]:
        return judge(first, cells, first)

    patch.setattr(audit, "judge", by_the_first)


def _bills_whoever_pays_now(patch: Patch) -> None:
    customer_of = WorkList.customer_of

    def now(self: WorkList, tenant_id: str, _at_us: int) -> str | None:
        return customer_of(self, tenant_id, self.now_us)

    patch.setattr(WorkList, "customer_of", now)


def _rewrites_entries(patch: Patch) -> None:
    cut_entries = Lanes.cut_entries

    def cut(self: Lanes, limit: int) -> int:
        before = len(self.tables.entries)
        made = cut_entries(self, limit)
        for entry in self.tables.entries[before:]:
            for known in self.tables.entries[:before]:
                if entry.series is not None and known.series == entry.series:
                    known.delta, entry.delta = known.delta + entry.delta, 0
                    break
        return made

    patch.setattr(Lanes, "cut_entries", cut)


MUTANTS: Final = (
    Mutant(
        "payer_of_the_moment",
        "usage is billed to whom its tenant was mapped when its window began",
        _bills_whoever_pays_now,
        ("misattributed",),
        ("tenants_move",),
    ),
    Mutant(
        "entry_rewritten",
        "an entry never changes: what comes later is the next one",
        _rewrites_entries,
        ("changed",),
    ),
    Mutant(
        "went_back_unchecked",
        "a ledger that knows less than it confirmed halts publishing until a person has looked",
        never_went_back,
        ("lost", "double", "identity_lost", "unnoticed"),
        ("ledger_restored",),
        ("the last attempt is remembered beside the facts",),
        remember_no_attempt,
    ),
    Mutant(
        "confirmed_on_one_machine",
        "what the ledger confirmed is remembered in the packed log, not by each machine alone",
        _remembers_on_each_machine,
        ("double", "lost", "unnoticed"),
        ("restored_and_replaced",),
        ("the last attempt is remembered beside the facts",),
        remember_no_attempt,
    ),
    Mutant(
        "believed_without_memory",
        "who has no state to hold the ledger against publishes nothing",
        _believes_without_memory,
        ("double", "unnoticed"),
        ("restored_beside_the_idle",),
        ("the last attempt is remembered beside the facts",),
        remember_no_attempt,
    ),
    Mutant(
        "slept_and_knows_all",
        "whoever was away reads what others noted before it is lent anything",
        _misses_nothing,
        ("double", "phantom", "unnoticed"),
        ("restored_while_asleep",),
        ("a ledger that knows less than it confirmed halts publishing",),
        never_went_back,
    ),
    Mutant(
        "note_overwritten",
        "a newer note of a partition's former owner stays with it",
        _notes_its_own,
        ("double", "phantom", "unnoticed"),
        ("restored_while_asleep",),
        ("a ledger that knows less than it confirmed halts publishing",),
        never_went_back,
    ),
    Mutant(
        "positions_outside_the_ledger",
        "what the ledger was told up to is in the ledger, and goes back with it",
        _keeps_positions_elsewhere,
        ("lost", "double", "unnoticed", "identity_lost"),
        ("ledger_restored",),
        ("the last attempt is remembered beside the facts",),
        remember_no_attempt,
    ),
    Mutant(
        "adopted_without_doubt",
        "what an adopted ledger may have sent waits for Stripe's sums",
        _adopts_without_doubt,
        ("double",),
        ("ledger_restored",),
    ),
    Mutant(
        "decision_inside_the_level",
        "what a person decides is an entry of its own, apart from readings of the log",
        _approves_into_the_level,
        ("lost", "finding"),
        ("reviewed_between",),
    ),
    Mutant(
        "corrected_twice",
        "a correction said twice is one",
        _corrects_each_time,
        ("double", "lost", "phantom"),
        ("decided_twice",),
    ),
    Mutant(
        "approved_twice",
        "the ledger takes the first decision on an item only",
        _approves_each_time,
        ("double", "phantom"),
        ("decided_twice",),
        ("an approved identity is one entry",),
        forget_approved_identities,
    ),
    Mutant(
        "doubt_sent_again",
        "nothing that Stripe may have is sent under a new identifier",
        _sends_doubts_again,
        ("double",),
        ("refused_for_a_day",),
    ),
    Mutant(
        "resent_beside_an_adoption",
        "a request that a lost ledger may have sent otherwise waits for Stripe's sums",
        _sends_again_what_another_ledger_may_have_sent,
        ("double",),
        ("restored_unsent",),
    ),
    Mutant(
        "proof_beside_the_sum",
        "a proof of absence passes only where Stripe's sum has no room for the request",
        _believes_any_proof,
        ("double",),
        ("refused_for_a_day",),
    ),
    Mutant(
        "audit_by_one_snapshot",
        "a minute is judged only if the registry says the same before and after its cells",
        _audits_by_one_snapshot,
        ("audit",),
        ("audited",),
    ),
)
