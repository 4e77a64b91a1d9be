"""What people do to the ledger, each in one transaction: map, decide, correct, send again."""

from math import lcm

from streams.core.catalogue import DEFAULT_NOTICE_US, MeterVersion
from tests.simulation.ledger.agreeing import Agreeing, RefusedError
from tests.simulation.ledger.rows import Entry, MeterEventRow, Parked

DOUBT_RESEND_US = (22 * 60 + 45) * 60_000_000
TAKES_US = 34 * 86_400_000_000
APPROVABLE = frozenset({"late", "early", "correction_limit"})


class People(Agreeing):
    """`ledger.approve`, `reject`, `redrive`, `map_customer` and `meters apply`."""

    def map_customer(self, tenant_id: str, customer: str, from_us: int) -> None:
        mapped = self.tables.customers.setdefault(tenant_id, [])
        if mapped and from_us <= self.now_us:
            raise RefusedError("effective_from: billed to the present customer already")
        mapped.append((from_us, customer))
        mapped.sort()
        self.note("mapped", tenant_id, customer, from_us)
        waiting = [u.entry_id for u in self.tables.uncovered.values() if u.tenant_id == tenant_id]
        self.place_entries(waiting)

    def append_meter(self, added: MeterVersion) -> None:
        """The next line about a metric, announced before any usage that it judges."""
        current = self.meter_at(added.metric, added.effective_from_us)
        step_us = lcm(current.window_us, added.window_us)
        if added.effective_from_us < self.now_us + DEFAULT_NOTICE_US:
            raise RefusedError("effective_from: a changed meter needs 1:00:00 of notice")
        if added.version != current.version + 1 or added.effective_from_us % step_us:
            raise RefusedError("effective_from: not the next line, or inside a window")
        self.meters[added.metric, added.version] = added
        self.note("meter", added.metric, added.version)

    def open_items(self) -> list[Parked]:
        return [p for p in self.tables.parked if p.state == "open"]

    def approve(self, parked_id: int, login: str) -> int | None:
        """Bills a reviewed item once for ever; None: another login has to approve it as well."""
        item = self._open_item(parked_id)
        row = item.row
        if item.kind != "review" or item.reason not in APPROVABLE or row.get("units") is None:
            raise RefusedError(f"parked_id: {parked_id} waits for another decision")
        if any(e.event_id == row["event_id"] for e in self.tables.entries):
            raise RefusedError(f"parked_id: the identity of {parked_id} is an entry already")
        kind = "correction" if item.reason == "correction_limit" else "approval"
        amount = row["tenant_id"], row["metric"], row["start_us"], int(row["units"])
        alone = kind == "correction" and not self.needs_four_eyes(*amount)
        waits = kind == "correction" and not alone
        if waits and self.tables.agreed.setdefault(parked_id, login) == login:
            return None
        entry = Entry(
            0, kind, row["tenant_id"], row["metric"], row["version"], row["start_us"],
            row["end_us"], int(row["units"]), row["event_id"], row["content"], row["occurred_us"],
        )  # fmt: skip
        item.state = "approved"
        made = self.insert_entry(entry)
        self.place_entries([made])
        if alone:
            self.tables.alone.append(made)
        return made

    def reject(self, parked_id: int) -> None:
        item = self._open_item(parked_id)
        if item.meter_event_id is not None:
            raise RefusedError(f"parked_id: {parked_id} is owed to Stripe")
        item.state = "rejected"
        self.note("rejected", parked_id)

    def redrive(self, parked_id: int, *, proven: bool = False) -> None:
        """Sends a dead meter event again; refused while Stripe may have it."""
        item = self._open_item(parked_id)
        if item.meter_event_id is None:
            raise RefusedError(f"parked_id: {parked_id} is no dead meter event")
        m = self.meter_event(item.meter_event_id)
        if m.state != "dead":
            raise RefusedError(f"parked_id: {parked_id} is no dead meter event")
        course = self.redrive_course(m, proven=proven)
        if course == "doubtful":
            raise RefusedError(f"parked_id: {parked_id} may be in Stripe's books already")
        if course == "too_old":
            raise RefusedError(f"parked_id: {parked_id} is too old for Stripe")
        item.state = "redriven"
        self.note("redriven", m.meter_event_id, course)
        if course == "supersede":
            m.attempts_used = 0
            self.release([m])
            return
        m.state, m.dead_kind, m.attempts_used = "pending", None, 0
        m.key_generation += 1
        m.next_attempt_us = self.now_us
        self.wake([m.lane_id])

    def redrive_course(self, m: MeterEventRow, *, proven: bool) -> str:
        """How it would be sent again. Nothing here has a deadline: no tenant has an invoice."""
        payers = {self.customer_of(e.tenant_id, e.start_us) for e in map(self.entry, m.entry_ids)}
        changed = payers != {m.customer}
        too_old = (m.timestamp_s or 0) * 1_000_000 < self.now_us - TAKES_US
        if m.possibly_executed and (m.rejected_us is None or m.dead_kind != "refused"):
            if (
                m.rejected_us is None
                and not self.awaits_sums(m)
                and not self.collided(m)
                and m.first_attempt_us is not None
                and self.now_us < m.first_attempt_us + DOUBT_RESEND_US
                and not changed
            ):
                return "resend"
            if not proven:
                return "doubtful"
            return "too_old" if too_old else "supersede"
        if too_old:
            return "too_old"
        return "supersede" if m.rejected_us is not None or changed else "resend"

    def awaits_sums(self, m: MeterEventRow) -> bool:
        """Whether a ledger that was lost may have sent the same amount in another request."""
        return self.held_by_doubt(m.customer, m.event_name, m.start_us)

    def collided(self, m: MeterEventRow) -> bool:
        """Whether Stripe answered an attempt with something that is not ours."""
        return any(self.tables.attempts[n - 1].outcome == "Collision" for n in m.attempts)

    def _open_item(self, parked_id: int) -> Parked:
        item = self.tables.parked[parked_id - 1]
        if item.state != "open":
            raise RefusedError(f"parked_id: {parked_id} is {item.state} already")
        return item
