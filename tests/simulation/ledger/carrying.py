"""Invoices that close: `00.01.00_15_pre_carry.sql`. What misses its own is carried, or named."""

from collections.abc import Iterator, Sequence

import msgspec

from tests.simulation.ledger.agreeing import RefusedError
from tests.simulation.ledger.reconciling import IN_FLIGHT_US
from tests.simulation.ledger.rejecting import Rejecting
from tests.simulation.ledger.rows import Carry, Entry, MeterEventRow, Parked, Uncovered

TOO_LATE = "too late for its invoice"


class Carrying(Rejecting):
    """Billing deadlines, and what becomes of amounts past them."""

    def payers(self) -> list[tuple[str, str, int, int]]:
        cycle, tables = self.tables.cycle, self.tables
        if cycle is None:
            return []
        return [
            (tenant_id, customer, cycle.grace_us, cycle.margin_us)
            for tenant_id, mapped in sorted(tables.customers.items())
            for _, customer in mapped
        ]

    # -- what workers do ---------------------------------------------------------------------------

    def carry_overdue(self, limit: int) -> list[tuple[int, int, int]]:
        lanes = self._lanes_overdue()[:limit]
        if not lanes or self.tables.halts:
            return [(0, 0, 0)]
        doubts, carried, parked = self.close_overdue(lanes), 0, 0
        due = [u for u in self.overdue() if u.lane_id in lanes and self._goes_by_itself(u)]
        for u in sorted(due, key=lambda u: (u.delta < 0, u.entry_id))[:limit]:
            objection = TOO_LATE if self._policy(u) == "review" else self._objection(u)
            if self._may_be_carried(u):
                objection = "the ledger that was lost may have carried it already"
            if u.delta == 0:
                self._settle_nothing(u, [u.entry_id])
            elif objection is None:
                self.carry_out(u, elsewhere=False)
                carried += 1
            else:
                self._park_overdue(u, objection)
                parked += 1
        return [(carried, parked, doubts)]

    def _lanes_overdue(self) -> list[int]:
        now_us, tables = self.now_us, self.tables
        if tables.cycle is None:
            return []
        wanted = {
            m.lane_id for m in tables.meter_events if m.open and self.has_passed(m.deadline_us)
        }
        wanted |= {u.lane_id for u in self.overdue() if u.lane_id and self._goes_by_itself(u)}
        lent = (tables.lanes[lane_id].claimed_until_us for lane_id in sorted(wanted))
        return [
            lane_id
            for lane_id, until_us in zip(sorted(wanted), lent, strict=True)
            if until_us is None or until_us <= now_us
        ]

    def overdue(self) -> Iterator[Uncovered]:
        """Entries that missed their invoice, but those that a lost ledger may have sent."""
        for u in self.tables.uncovered.values():
            if u.lane_id is not None and self.has_passed(u.deadline_us):
                lane = self.tables.lanes[u.lane_id]
                if not self.held_by_doubt(lane.customer, lane.event_name, u.start_us):
                    yield u

    def _goes_by_itself(self, u: Uncovered) -> bool:
        waits = any(p.entry_id == u.entry_id for p in self.tables.parked)
        return u.delta == 0 or (self._policy(u) != "manual" and not waits)

    def _policy(self, u: Uncovered) -> str:
        entry = self.entry(u.entry_id)
        return self.meters[entry.metric, entry.version].carry

    def _objection(self, u: Uncovered) -> str | None:
        """Why an amount cannot go into the open period by itself."""
        assert u.lane_id is not None
        payer = self.customer_of(u.tenant_id, self.now_us)
        if payer != self.tables.lanes[u.lane_id].customer:
            return f"the tenant is mapped to {payer} now"
        if u.delta >= 0:
            return None
        present = self._open_period_holds(u.tenant_id, self.entry(u.entry_id).metric)
        return f"it holds {present}" if present + u.delta < 0 else None

    def _may_be_carried(self, u: Uncovered) -> bool:
        """Whether it was overdue already when a restored ledger was taken on."""
        at_us = (
            self.tables.adoptions[-1].quiet_from_us - IN_FLIGHT_US if self.tables.adoptions else -1
        )
        return u.deadline_us is not None and u.deadline_us <= at_us

    def _open_period_holds(self, tenant_id: str, metric: str) -> int:
        assert self.tables.cycle is not None
        end_us = self.tables.cycle.end_us(self.now_us)
        inside = range(end_us - self.tables.cycle.length_us, end_us)
        levels = sum(
            level.total
            for level in self.tables.levels.values()
            if level.key[:2] == (tenant_id, metric) and level.key[2] in inside
        )
        return levels + sum(
            e.delta
            for e in self.tables.entries
            if (e.tenant_id, e.metric) == (tenant_id, metric)
            and e.series is None
            and e.start_us in inside
        )

    def _settle_nothing(self, u: Uncovered, entry_ids: Sequence[int]) -> None:
        """Entries of a window that add up to zero are settled without a request."""
        assert u.lane_id is not None
        lane = self.tables.lanes[u.lane_id]
        before = [m for m in self.tables.meter_events if u.entry_id in m.entry_ids]
        request = {
            "lane_id": u.lane_id, "customer": lane.customer, "event_name": lane.event_name,
            "window_start_us": u.start_us, "window_end_us": u.end_us, "per_entry": False,
            "units": 0, "attempts_used": 0, "entry_ids": list(entry_ids), "value": None,
            "timestamp_s": None, "identifier": None, "payload_hash": None,
            "generation": max((m.generation for m in before), default=0) + 1,
        }  # fmt: skip
        self.freeze(msgspec.json.encode([request]).decode())

    def _park_overdue(self, u: Uncovered, why: str) -> None:
        if not any(p.entry_id == u.entry_id for p in self.tables.parked):
            number = len(self.tables.parked) + 1
            row = {"event_id": f"entry {u.entry_id}", "rule": why}
            self.tables.parked.append(
                Parked(number, "overdue", "past_deadline", row, entry_id=u.entry_id)
            )
            self.note("past deadline", u.entry_id, why)

    def carry_out(self, u: Uncovered, *, elsewhere: bool) -> None:
        """Out of the closed period, and into the open one unless it is billed elsewhere."""
        e = self.entry(u.entry_id)
        out = Entry(
            0, "carry", e.tenant_id, e.metric, e.version, e.start_us, e.end_us, -e.delta,
            f"out:{e.name}", None, e.occurred_us,
        )  # fmt: skip
        taken, put = self.insert_entry(out), None
        self.place_entries([taken])
        self._settle_nothing(u, [e.entry_id, taken])
        if not elsewhere:
            put = self._put_in(e, f"in:{e.name}")
        self.tables.carries.append(Carry(e.entry_id, taken, put, self.now_us))
        self.note("carried", e.entry_id, taken, put)

    def _put_in(self, e: Entry, name: str) -> int:
        dated_us = self.now_us // 1_000_000 * 1_000_000
        start_us = dated_us - dated_us % (e.end_us - e.start_us)
        put = Entry(
            0, "carry", e.tenant_id, e.metric, e.version, start_us,
            start_us + e.end_us - e.start_us, e.delta, name, None, dated_us,
        )  # fmt: skip
        made = self.insert_entry(put)
        self.place_entries([made])
        return made

    # -- what people do ----------------------------------------------------------------------------

    def carry_entry(self, entry_id: int, *, elsewhere: bool) -> None:
        """A person's word on an overdue entry; said twice it changes nothing."""
        if any(c.entry_id == entry_id for c in self.tables.carries):
            return
        u = next((u for u in self.overdue() if u.entry_id == entry_id and u.delta), None)
        if u is None:
            raise RefusedError(f"entry: {entry_id} has not missed its invoice")
        if not elsewhere and (objection := self._objection(u)) is not None:
            raise RefusedError(f"entry: {entry_id}: {objection}")
        self.carry_out(u, elsewhere=elsewhere)
        for p in self.tables.parked:
            if p.entry_id == entry_id and p.state == "open":
                p.state = "rejected" if elsewhere else "approved"

    def redrive_course(self, m: MeterEventRow, *, proven: bool) -> str:
        if not self.has_passed(m.deadline_us):
            return super().redrive_course(m, proven=proven)
        in_doubt = m.possibly_executed and (m.rejected_us is None or m.dead_kind != "refused")
        return "doubtful" if in_doubt and not proven else "supersede"
