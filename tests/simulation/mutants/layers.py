"""Rules that hide the bugs of others: a mutant has them switched off beside its own."""

from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from streams.adapters.ledger_facts import LedgerFacts
from streams.adapters.ledger_publishing import LedgerPublishing
from streams.core import meter_event
from streams.core.admission import _Admission
from streams.core.fact import FactBatch
from streams.core.lane import Claim, Standing
from streams.engine import recovery
from tests.simulation.ledger.people import People
from tests.simulation.mutants import Patch
from tests.simulation.operator import Operator

_apply = LedgerFacts._apply
_identify = meter_event.identify
_approve = People.approve


def ignore_holes(patch: Patch) -> None:
    """A table is taken as complete although the packed log has a hole."""

    def continuing(_applied: int, records: list[Any]) -> tuple[list[Any], list[Any]]:
        return sorted(records, key=lambda record: record.first), []

    patch.setattr(recovery, "continuing", continuing)
    patch.setattr(recovery._Attempt, "_reaches_back", lambda *_: True)
    patch.setattr(recovery._Attempt, "_reaches_facts", lambda *_: True)


def begin_at_the_position(patch: Patch) -> None:
    """A lost table begins again where the ledger stands, with nothing in it."""

    def cold(self: Any, table: Any) -> Any:
        _, high = self._packed.marks()
        at = changed(table.meta, applied=self._acknowledged)
        table.replace(lambda _: None, at)
        self._settle_position(table, high)
        return table

    patch.setattr(recovery._Attempt, "_cold", cold)


def never_went_back(patch: Patch) -> None:
    """Nobody compares what the ledger holds with what it confirmed."""

    async def behind(_self: LedgerFacts, _known: Any) -> list[Any]:
        return []

    async def apply(self: LedgerFacts, conn: Any, batch: FactBatch) -> Any:
        return await _apply(self, conn, replace(batch, acknowledged=-1))

    patch.setattr(LedgerFacts, "behind", behind)
    patch.setattr(LedgerFacts, "_apply", apply)


def forget_approved_identities(patch: Patch) -> None:
    """An identity may be approved again, if only its item is open."""

    def approve(self: People, parked_id: int, login: str) -> int | None:
        item = self.tables.parked[parked_id - 1]
        if item.state == "open" and item.meter_event_id is None:
            event_id = item.row["event_id"]
            self.tables.identities.pop(("approval", event_id), None)
            for entry in self.tables.entries:
                if (entry.kind, entry.event_id) == ("approval", event_id):
                    entry.event_id = None
        return _approve(self, parked_id, login)

    patch.setattr(People, "approve", approve)


def remember_no_attempt(patch: Patch) -> None:
    """Whatever attempt is asked for, the ledger is said to have it; between claims and in them."""

    async def standing(_self: LedgerPublishing, *_asked: object) -> Standing:
        return Standing(stands=True, last=None)

    patch.setattr(LedgerPublishing, "_standing", standing)


def take_from_anywhere(patch: Patch) -> None:
    """A record is taken on whatever partition it comes."""
    begin = _Admission.__init__

    def begun(self: _Admission, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.home = lambda _key: self.partition

    patch.setattr(_Admission, "__init__", begun)


def never_reconcile(patch: Patch) -> None:
    """Nobody compares with Stripe's sums, nor proves by them what is absent."""
    patch.setattr(Operator, "reconcile", lambda _self: None)
    patch.setattr(Operator, "is_absent", lambda *_: False)


def name_cells_alone(patch: Patch) -> None:
    """All requests of a window have one identifier, but those that follow from a proof.

    Their keys differ: else Stripe would compare what they ask for, and refuse.
    """

    def identify(origin: Any, cell: Any, first: str, generation: int) -> str:
        if first.startswith("proof:"):
            return _identify(origin, cell, first, generation)
        return _identify(origin, cell, "", 1)

    def key(self: Claim) -> str:
        return f"{self.identifier}:{self.meter_event_id}.g{self.key_generation}"

    patch.setattr(meter_event, "identify", identify)
    patch.setattr(Claim, "idempotency_key", property(key))
