"""What one person may not do alone: `00.01.00_11_pre_four_eyes.sql`."""

from datetime import UTC, datetime

from streams.core.catalogue import MeterVersion
from tests.simulation.ledger.lanes import Lanes
from tests.simulation.ledger.rows import Entry, Proposal, Wanted

LIMIT_UNITS = 3


class RefusedError(Exception):
    """The ledger refuses it, and would again."""


class Agreeing(Lanes):
    """`ledger.correct`, `propose_correction`, `approve_proposal`, `reject_proposal`."""

    limit_units = LIMIT_UNITS
    """What one person corrects alone, per tenant, metric and billing period."""

    def needs_four_eyes(self, tenant_id: str, metric: str, start_us: int, units: int) -> bool:
        """Many small ones are one large one."""
        alone = self.alone_units(tenant_id, metric, start_us)
        return max(abs(units), abs(units + alone)) > self.limit_units

    def alone_units(self, tenant_id: str, metric: str, start_us: int) -> int:
        """What single persons added to a period by corrections."""
        period = self._period(start_us)
        return sum(
            e.delta
            for e in map(self.entry, self.tables.alone)
            if (e.tenant_id, e.metric) == (tenant_id, metric) and self._period(e.start_us) == period
        )

    def _period(self, at_us: int) -> object:
        if self.tables.cycle is not None:
            return self.tables.cycle.end_us(at_us)
        at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
        return at.year, at.month

    def correct(self, tenant_id: str, metric: str, at_us: int, units: int, key: str) -> int:
        """A person's signed correction; the same key twice is one."""
        return self._book(Wanted(tenant_id, metric, at_us, units, key), None)

    def propose(self, wanted: Wanted, login: str) -> int:
        """Asks another login; the same key twice is one."""
        for p in self.tables.proposals:
            if (p.wanted.tenant_id, p.wanted.key) == (wanted.tenant_id, wanted.key):
                return p.number
        if ("correction", wanted.identity) in self.tables.identities:
            raise RefusedError(f"key: {wanted.key} stands for an entry already")
        self._signed_meter(wanted)
        number = len(self.tables.proposals) + 1
        self.tables.proposals.append(Proposal(number, wanted, login))
        self.note("proposed", number, wanted.key, wanted.units)
        return number

    def approve_proposal(self, number: int, login: str) -> int:
        """The second pair of eyes."""
        p = self._open_proposal(number)
        if self.is_own(p, login):
            raise RefusedError(f"proposal: {number} is your own")
        made = self._book(p.wanted, p)
        p.state = "approved"
        return made

    def reject_proposal(self, number: int) -> None:
        self._open_proposal(number).state = "rejected"
        self.note("proposal rejected", number)

    def is_own(self, p: Proposal, login: str) -> bool:
        """Whether somebody would agree with themselves."""
        return p.proposed_by == login

    def open_proposals(self) -> list[Proposal]:
        return [p for p in self.tables.proposals if p.state == "open"]

    def _open_proposal(self, number: int) -> Proposal:
        p = self.tables.proposals[number - 1]
        if p.state != "open":
            raise RefusedError(f"proposal: {number} is {p.state} already")
        return p

    def _book(self, wanted: Wanted, proposed: Proposal | None) -> int:
        known = self.tables.identities.get(("correction", wanted.identity))
        if known is not None:
            if self.entry(known).delta != wanted.units:
                raise RefusedError(f"key: {wanted.key} stands for another correction")
            return known
        tenant_id, metric, units = wanted.tenant_id, wanted.metric, wanted.units
        meter = self._signed_meter(wanted)
        asked = [p for p in self.tables.proposals if p.wanted.identity == wanted.identity]
        if asked != ([] if proposed is None else [proposed]):
            raise RefusedError(f"key: {wanted.key} stands for a proposal")
        start_us = wanted.at_us - wanted.at_us % meter.window_us
        if proposed is None and self.needs_four_eyes(tenant_id, metric, start_us, units):
            raise RefusedError(f"delta: {units} is more than one person corrects alone")
        entry = Entry(
            0, "correction", tenant_id, metric, meter.version, start_us,
            start_us + meter.window_us, units, wanted.identity, None, wanted.at_us,
        )  # fmt: skip
        made = self.insert_entry(entry)
        self.place_entries([made])
        if proposed is None:
            self.tables.alone.append(made)
        return made

    def _signed_meter(self, wanted: Wanted) -> MeterVersion:
        meter = self.meter_at(wanted.metric, wanted.at_us)
        if meter.aggregation != "sum":
            raise RefusedError(f"metric: {wanted.metric} takes no signed amounts")
        return meter

    def meter_at(self, metric: str, at_us: int) -> MeterVersion:
        """The line of the rule book that is in force at an instant."""
        found = [
            m for m in self.meters.values() if m.metric == metric and m.effective_from_us <= at_us
        ]
        return max(found, key=lambda m: m.version)
