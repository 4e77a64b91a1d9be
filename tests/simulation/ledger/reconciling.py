"""Stripe's sums as evidence, and ledgers that went back: `00.01.00_13_pre_reconcile.sql`."""

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from tests.simulation.ledger.people import People
from tests.simulation.ledger.rows import Adoption, Doubt, Entry, MeterEventRow, Reading

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
REACH_US = 35 * DAY_US
IN_FLIGHT_US = 10 * 60_000_000
ADOPTED = "ledger_adopted"
REPORTED = "error report"
CellKey = tuple[str, str, int]


class Reconciling(People):
    """Cells in doubt, and what settles them. A cell is an hour of a customer on a meter."""

    # -- doubts ------------------------------------------------------------------------------------

    def doubt(self, customer: str, event_name: str, at_us: int, reason: str) -> None:
        """Notes that a cell is in doubt; once for a reason, settled or not."""
        start_us = at_us - at_us % HOUR_US
        known = (
            d
            for d in self.tables.doubts
            if (d.customer, d.event_name, d.start_us) == (customer, event_name, start_us)
        )
        if not any(d.reason == reason for d in known):
            self.tables.doubts.append(Doubt(customer, event_name, start_us, reason, self.now_us))

    def place_entries(self, entry_ids: Iterable[int]) -> None:
        """After an adoption, whatever is placed may have been sent by the ledger that was lost."""
        ids = list(entry_ids)
        super().place_entries(ids)
        if self.tables.adoptions:
            for entry_id in ids:
                placed = self.tables.uncovered[entry_id]
                self._doubt_adopted(placed.lane_id, placed.start_us)

    def _doubt_adopted(self, lane_id: int | None, at_us: int) -> None:
        reached = [a for a in self.tables.adoptions if a.from_us <= at_us < a.until_us]
        if reached and lane_id is not None:
            lane = self.tables.lanes[lane_id]
            reason = f"{ADOPTED} {reached[-1].adoption_id}"
            self.doubt(lane.customer, lane.event_name, at_us, reason)

    def held_by_doubt(self, customer: str, event_name: str, at_us: int) -> bool:
        cell = customer, event_name, at_us - at_us % HOUR_US
        return any(
            (d.customer, d.event_name, d.start_us) == cell
            for d in self.tables.doubts
            if d.open and d.reason.startswith(ADOPTED)
        )

    # -- cells -------------------------------------------------------------------------------------

    def cells(self) -> dict[CellKey, dict[str, Any]]:
        """The ledger's side of every cell it knows, as the statement `cells` answers."""
        requests: defaultdict[CellKey, list[MeterEventRow]] = defaultdict(list)
        for m in self.tables.meter_events:
            if m.identifier is not None and m.timestamp_s is not None:
                at_us = m.timestamp_s * 1_000_000
                requests[m.customer, m.event_name, at_us - at_us % HOUR_US].append(m)
        doubts: defaultdict[CellKey, list[Doubt]] = defaultdict(list)
        for d in self.tables.doubts:
            if d.open:
                doubts[d.customer, d.event_name, d.start_us].append(d)
        return {
            key: self._cell(key, requests.get(key, []), doubts.get(key, []))
            for key in sorted(requests.keys() | doubts.keys())
        }

    def _cell(
        self, key: CellKey, events: list[MeterEventRow], doubts: list[Doubt]
    ) -> dict[str, Any]:
        customer, event_name, start_us = key
        adopted = any(d.reason.startswith(ADOPTED) for d in doubts)
        waiting = self._waiting(key) if adopted else []
        attempts = [self.tables.attempts[n - 1] for m in events for n in m.attempts]
        quiet_us = [a.lease_until_us for a in attempts]
        quiet_us += [a.quiet_from_us for a in self.tables.adoptions if adopted]
        deadlines = [m.deadline_us for m in events if _is_doubtful(m)]
        deadlines += [self.tables.uncovered[n].deadline_us for n in waiting]
        return {
            "customer": customer, "event_name": event_name, "start_us": start_us,
            "end_us": start_us + HOUR_US,
            "recorded": sum(m.units for m in events if m.state == "recorded"),
            "doubtful": [(m.meter_event_id, m.units) for m in events if _is_doubtful(m)],
            "reported": [
                (m.meter_event_id, m.units)
                for m in events
                if m.state == "recorded" and any(d.reason.startswith(REPORTED) for d in doubts)
            ],
            "in_flight": sum(m.open and m.first_attempt_us is not None for m in events),
            "waiting": sum(self.entry(n).delta for n in waiting),
            "waiting_negative": sum(min(0, self.entry(n).delta) for n in waiting),
            "waiting_entries": waiting,
            "reasons": sorted(d.reason for d in doubts),
            "ready": not adopted or self._is_complete(key),
            "quiet_from_us": max(quiet_us, default=0),
            "is_over": self.now_us >= key[2] + HOUR_US,
            "is_late": any(map(self.has_passed, deadlines)),
        }  # fmt: skip

    def _waiting(self, key: CellKey) -> list[int]:
        lane_id = self.tables.lane_ids.get(key[:2])
        return sorted(
            u.entry_id
            for u in self.tables.uncovered.values()
            if u.lane_id == lane_id and u.start_us - u.start_us % HOUR_US == key[2]
        )

    def _is_complete(self, key: CellKey) -> bool:
        """Whether workers have told all that the ledger forgot, and it was cut."""
        tables = self.tables
        told = all(
            tables.positions.get((log_id, partition), -1) >= acknowledged
            for (log_id, partition, acknowledged, _), adopted in tables.went_back.items()
            if adopted
        )
        hour = range(key[2], key[2] + HOUR_US)
        due = [lv.key for lv in tables.levels.values() if lv.due_us and lv.key[2] in hour]
        cut = all(self.meters[metric, n].event_name != key[1] for _, metric, _, n, *_ in due)
        return told and cut and self.now_us >= key[2] + HOUR_US

    def note_reading(self, key: CellKey, value: Decimal) -> None:
        number = len(self.tables.readings) + 1
        self.tables.readings.append(Reading(number, *key, value, self.now_us))

    def readings(self, key: CellKey) -> list[Reading]:
        return [r for r in self.tables.readings if (r.customer, r.event_name, r.start_us) == key]

    def settle_cell(self, s: dict[str, Any]) -> str:
        """Writes down what the sums proved."""
        key = s["customer"], s["event_name"], s["start_us"]
        now = self.cells().get(key)
        if now is None or _moved(now, s):
            return "moved"
        lane_id = self.tables.lane_ids[key[:2]]
        self.note("cell settled", *key, s["present"], s["absent"], s["net_units"])
        covered = sorted(
            {n for i in s["absent"] for n in self._live_entries(i)} | set(s["waiting_entries"])
        )
        deadlines = [self.meter_event(n).deadline_us for n in s["absent"]]
        deadlines += [self.tables.uncovered[n].deadline_us for n in s["waiting_entries"]]
        deadline_us = min((at_us for at_us in deadlines if at_us is not None), default=None)
        overdue = self.has_passed(deadline_us) and s["net_units"] != 0
        self._judge(s["present"], s["absent"])
        missing = covered
        if s["adopted_units"]:
            covered, missing = self._tell_apart(covered, s["adopted_units"], s["net_units"])
            self._cover(lane_id, s, "adopted", "recorded", covered).deadline_us = deadline_us
        if overdue:
            self.place_entries(missing)
        elif missing:
            state = "pending" if s["net_units"] else "nothing"
            self._cover(lane_id, s, "net", state, missing).deadline_us = deadline_us
        for d in self.doubts_of(key):
            d.open = False
        self.wake([lane_id])
        return "carried" if overdue else "settled"

    def doubts_of(self, key: CellKey) -> list[Doubt]:
        """What is open of a cell."""
        return [
            d
            for d in self.tables.doubts
            if d.open and (d.customer, d.event_name, d.start_us) == key
        ]

    def _judge(self, present: list[int], absent: list[int]) -> None:
        for number in present:
            self.meter_event(number).state = "recorded"
            self.withdraw(number)
        for number in absent:
            m = self.meter_event(number)
            m.state, m.live = "superseded", False
            self.withdraw(number)

    def _live_entries(self, meter_event_id: int) -> list[int]:
        m = self.meter_event(meter_event_id)
        return m.entry_ids if m.live else []

    def _tell_apart(
        self, entry_ids: list[int], there: int, net: int
    ) -> tuple[list[int], list[int]]:
        """What Stripe has of an adopted cell, and what it lacks: the latest of its sign."""
        present, missing, rest = list(entry_ids), list[int](), net
        for e in map(self.entry, reversed(entry_ids)):
            if rest == 0 or e.delta * net <= 0:
                continue
            if abs(e.delta) <= abs(rest):
                present.remove(e.entry_id)
                missing.append(e.entry_id)
                rest -= e.delta
            else:
                present.append(self._divided(e, "out", -rest))
                missing.append(self._divided(e, "in", rest))
                rest = 0
        assert rest == 0
        assert there == sum(self.entry(n).delta for n in present)
        return present, missing

    def _divided(self, e: Entry, side: str, units: int) -> int:
        name = f"{side} by {len(self.tables.adoptions)}:{e.name}"
        part = Entry(
            0, "adoption", e.tenant_id, e.metric, e.version, e.start_us, e.end_us, units, name,
            None, e.occurred_us,
        )  # fmt: skip
        made = self.insert_entry(part)
        self.place_entries([made])
        return made

    def _cover(
        self, lane_id: int, s: dict[str, Any], what: str, state: str, covered: list[int]
    ) -> MeterEventRow:
        """A request that the sums proved, and the entries that it covers from now on."""
        said = s[f"{what}_request"] or {}
        before = [m.generation for m in self.tables.meter_events if m.first_entry_id == covered[0]]
        for entry_id in covered:
            self.tables.uncovered.pop(entry_id, None)
        row = MeterEventRow(
            len(self.tables.meter_events) + 1, lane_id, s["customer"], s["event_name"],
            s["start_us"], s["end_us"], True, s[f"{what}_units"], covered[0],
            max(before, default=0) + 1, said.get("value"), said.get("timestamp_s"),
            said.get("identifier"), said.get("payload_hash"), state, 0,
            self.now_us if state == "pending" else None, covered,
        )  # fmt: skip
        self.tables.meter_events.append(row)
        return row

    # -- ledgers that went back --------------------------------------------------------------------

    def attempt_stands(
        self, attempt_id: int | None, started_us: int | None
    ) -> list[tuple[bool, int | None, int | None]]:
        """Whether an attempt is there, or the ledger was adopted since; and the last that is."""
        tables = self.tables
        stands = (
            attempt_id is None
            or started_us is None
            or any(
                (a.attempt_id, a.started_us) == (attempt_id, started_us) for a in tables.attempts
            )
            or any(a.from_us + REACH_US >= started_us for a in tables.adoptions)
        )
        if not stands and "ledger_went_back" not in tables.halts:
            tables.halts["ledger_went_back"] = f"attempt {attempt_id}"
            self.note("halted", attempt_id)
        last = tables.attempts[-1] if tables.attempts else None
        return [(stands, last.attempt_id if last else None, last.started_us if last else None)]

    def adopt(self) -> int | None:
        """A person takes a restored ledger on; None where there is nothing to adopt."""
        tables = self.tables
        if "ledger_went_back" not in tables.halts:
            return None
        unsettled = [m for m in tables.meter_events if m.open or m.state == "dead"]
        number = len(tables.adoptions) + 1
        until_us = self.now_us + IN_FLIGHT_US
        tables.adoptions.append(
            Adoption(number, self.now_us - REACH_US, until_us, self.now_us + IN_FLIGHT_US)
        )
        for seen in tables.went_back:
            tables.went_back[seen] = True
        for m in unsettled:
            m.state, m.dead_kind, m.possibly_executed = "dead", "ambiguous", True
            m.next_attempt_us = None
            self.park_dead(m)
            self._doubt_adopted(m.lane_id, (m.timestamp_s or 0) * 1_000_000)
        for u in tables.uncovered.values():
            self._doubt_adopted(u.lane_id, u.start_us)
        del tables.halts["ledger_went_back"]
        self.note("adopted", number, len(unsettled))
        self.wake(dict.fromkeys(m.lane_id for m in unsettled))
        return number


def _moved(now: dict[str, Any], s: dict[str, Any]) -> bool:
    """Whether a cell is not any more what was compared."""
    return bool(
        now["in_flight"]
        or not now["ready"]
        or now["recorded"] != s["recorded"]
        or now["waiting_entries"] != s["waiting_entries"]
        or [n for n, _ in now["doubtful"]] != s["doubtful"]
    )


def _is_doubtful(m: MeterEventRow) -> bool:
    return m.state == "dead" and (
        m.dead_kind == "ambiguous" or (m.possibly_executed and m.rejected_us is None)
    )
