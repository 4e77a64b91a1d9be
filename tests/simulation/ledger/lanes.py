"""Statements of `queries_publishing.sql`: cut, lend, freeze, settle."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from tests.simulation.ledger.closing import Closing
from tests.simulation.ledger.rows import Attempt, Entry, MeterEventRow, Uncovered

UNITS_MAX = 999_999_999_999_999


class Lanes(Closing):
    """From levels to settlements."""

    def cut_entries(self, limit: int) -> int:
        now_us = self.now_us
        due = [
            level
            for level in self.tables.levels.values()
            if level.due_us is not None and level.due_us <= now_us and not level.held
        ]
        if not due:
            return 0
        due.sort(key=lambda level: (level.due_us, level.key))
        made = []
        for level in due[:limit]:
            delta = max(-UNITS_MAX, min(UNITS_MAX, level.total - level.cut_total))
            if delta:
                tenant_id, metric, start_us, version, _, _ = level.key
                level.revision += 1
                level.cut_total += delta
                entry = Entry(
                    0, "usage", tenant_id, metric, version, start_us, level.end_us, delta,
                    series=level.key, revision=level.revision,
                )  # fmt: skip
                made.append(self.insert_entry(entry))
            if level.cut_total == level.total:
                level.due_us = None
        self.place_entries(made)
        return len(made)

    # -- lending -----------------------------------------------------------------------------------

    def lock_lanes(self, limit: int) -> list[int] | None:
        if self.tables.halts:
            return None
        now_us = self.now_us
        free = [
            lane
            for lane in self.tables.lanes.values()
            if lane.next_due_us is not None
            and lane.next_due_us <= now_us
            and not lane.paused
            and not (self.tables.pauses and self.is_paused(lane))
            and (lane.claimed_until_us is None or lane.claimed_until_us <= now_us)
        ]
        free.sort(key=lambda lane: (lane.next_due_us, lane.lane_id))
        return [lane.lane_id for lane in free[:limit]] or None

    def merge_pending(self, lanes: Sequence[int]) -> int:
        now_us = self.now_us
        self.close_overdue(lanes)
        merged = [
            m
            for lane_id in lanes
            for m in self.open_in(lane_id)
            if m.state == "pending"
            and m.next_attempt_us is not None
            and m.next_attempt_us <= now_us
            and not m.possibly_executed
            and not self.unfinished(m)
            and not m.per_entry
            and any(
                u.lane_id == lane_id
                and (u.start_us, u.end_us) == (m.start_us, m.end_us)
                and u.occurred_us is None
                and u.due_us <= now_us
                and not self.has_passed(u.deadline_us)
                for u in self.tables.uncovered.values()
            )
        ]
        self.release(merged)
        return len(merged)

    def due_retries(self, lanes: Sequence[int]) -> list[tuple[int, int]]:
        now_us = self.now_us
        found = []
        for lane_id in sorted(lanes):
            for m in self.open_in(lane_id):
                if m.next_attempt_us is not None and m.next_attempt_us <= now_us:
                    found.append((lane_id, m.meter_event_id))
                    break
        return found

    def freeze_candidates(self, lanes: Sequence[int]) -> list[tuple[Any, ...]]:
        return [row for lane in lanes if (row := self._candidate(lane)) is not None]

    def _candidate(self, lane_id: int) -> tuple[Any, ...] | None:
        lane, open_ = self.tables.lanes[lane_id], self.open_in(lane_id)
        taking = {
            (m.start_us, m.end_us)
            for m in open_
            if m.state == "pending" and not m.possibly_executed and not m.per_entry
        }
        waiting = [
            u
            for u in self.tables.uncovered.values()
            if u.lane_id == lane_id
            and u.due_us <= self.now_us
            and not self.has_passed(u.deadline_us)
            and not self.held_by_doubt(lane.customer, lane.event_name, u.start_us)
            and (u.occurred_us is not None or (u.start_us, u.end_us) not in taking)
        ]
        waiting.sort(key=lambda u: (u.start_us, u.entry_id))
        for _, group in groupby(sorted(waiting, key=_together), _together):
            taken = _within_digits(list(group))
            units = sum(u.delta for u in taken)
            if taken and (units >= 0 or not open_):
                return self._offer(lane_id, taken, units)
        return None

    def _offer(self, lane_id: int, taken: list[Uncovered], units: int) -> tuple[Any, ...]:
        lane, ids = self.tables.lanes[lane_id], [u.entry_id for u in taken]
        before = [m for m in self.tables.meter_events if set(m.entry_ids) & set(ids)]
        return (
            lane_id, lane.customer, lane.event_name, taken[0].start_us, taken[0].end_us, units,
            ids, self.entry(ids[0]).event_id, taken[0].occurred_us,
            max((m.generation for m in before), default=0) + 1,
            max((m.attempts_used for m in before), default=0), self.now_us,
        )  # fmt: skip

    def freeze(self, requests: str) -> list[tuple[int, bool]]:
        made = []
        for r in msgspec.json.decode(requests):
            nothing = r["identifier"] is None
            number = len(self.tables.meter_events) + 1
            taken = [self.tables.uncovered.pop(entry_id) for entry_id in r["entry_ids"]]
            deadlines = [u.deadline_us for u in taken if u.deadline_us is not None]
            self.tables.meter_events.append(
                MeterEventRow(
                    number, r["lane_id"], r["customer"], r["event_name"], r["window_start_us"],
                    r["window_end_us"], r["per_entry"], r["units"], r["entry_ids"][0],
                    r["generation"], r["value"], r["timestamp_s"], r["identifier"],
                    r["payload_hash"], "nothing" if nothing else "pending", r["attempts_used"],
                    None if nothing else self.now_us, r["entry_ids"],
                    deadline_us=min(deadlines, default=None),
                )
            )  # fmt: skip
            self.note("frozen", number, r["identifier"], r["units"], r["entry_ids"])
            made.append((number, not nothing))
        return made

    def lend(self, events: Sequence[int], worker: str, lease_ms: int) -> list[int]:
        until_us = self.now_us + lease_ms * 1_000
        made = []
        for number in events:
            m = self.meter_event(number)
            doubted = m.possibly_executed or self.unfinished(m)
            if not doubted or m.first_attempt_us is None:
                m.first_attempt_us = self.now_us
            m.possibly_executed, m.next_attempt_us = doubted, until_us
            attempt_id = len(self.tables.attempts) + 1
            self.tables.attempts.append(
                Attempt(attempt_id, number, m.key_generation, worker, self.now_us, until_us)
            )
            m.attempts.append(attempt_id)
            lane = self.tables.lanes[m.lane_id]
            lane.claimed_until_us = lane.next_due_us = until_us
            lane.attempt_id = attempt_id
            made.append(attempt_id)
        return made

    def lent(self, attempts: Sequence[int]) -> list[tuple[Any, ...]]:
        rows = []
        for attempt_id in sorted(attempts):
            a = self.tables.attempts[attempt_id - 1]
            m = self.meter_event(a.meter_event_id)
            earlier = sum(1 for other in m.attempts if other < attempt_id)
            rows.append((
                m.lane_id, m.meter_event_id, attempt_id, m.customer, m.event_name, m.value,
                m.timestamp_s, m.identifier, m.payload_hash, m.key_generation, m.attempts_used,
                earlier, m.first_attempt_us, m.possibly_executed, self.now_us, a.lease_until_us,
            ))  # fmt: skip
        return rows

    def rest_lanes(self, lanes: Sequence[int]) -> None:
        now_us = self.now_us
        for lane_id in lanes:
            instants = [m.next_attempt_us for m in self.open_in(lane_id) if m.next_attempt_us]
            instants += [u.due_us for u in self.tables.uncovered.values() if u.lane_id == lane_id]
            later = [at_us for at_us in instants if at_us > now_us]
            self.tables.lanes[lane_id].next_due_us = min(later, default=None)

    def pause_lane(self, lane: int, reason: str) -> None:
        self.tables.lanes[lane].paused = True
        self.note("lane paused", lane, reason)

    # -- settling ----------------------------------------------------------------------------------

    def settle_many(self, settlements: str) -> int:
        told = msgspec.json.decode(settlements)
        for r in sorted(told, key=lambda r: (r["lane_id"], r["attempt_id"])):
            self._settle(r)
        return len(told)

    def _settle(self, r: dict[str, Any]) -> None:
        m, attempt = (
            self.meter_event(r["meter_event_id"]),
            self.tables.attempts[r["attempt_id"] - 1],
        )
        if attempt.finished_us is not None:
            return
        attempt.finished_us, attempt.outcome = self.now_us, r["outcome"]
        attempt.http_status = r["http_status"]
        executed = m.possibly_executed or r["possibly_executed"]
        key_generation = max(m.key_generation, r["key_generation"])
        self.note("settled", m.meter_event_id, attempt.attempt_id, r["state"], r["outcome"])
        if r["state"] == "recorded" and m.state in {"pending", "ambiguous", "dead"}:
            if m.rejected_us is None:
                m.state, m.next_attempt_us, m.dead_kind = "recorded", None, None
                self.withdraw(m.meter_event_id)
            m.possibly_executed, m.key_generation = executed, key_generation
        elif r["state"] == "recorded" and m.state == "superseded" and m.rejected_us is None:
            self.tables.findings["superseded_recorded", str(m.meter_event_id)] = "open"
        elif m.open and m.attempts[-1] == attempt.attempt_id:
            self._fail(m, r, executed=executed)
        elif m.state in {"pending", "ambiguous", "dead"}:
            m.possibly_executed, m.key_generation = executed, key_generation
        lane = self.tables.lanes[r["lane_id"]]
        if lane.attempt_id == attempt.attempt_id:
            lane.claimed_until_us = lane.attempt_id = None
        self.wake([lane.lane_id])

    def _fail(self, m: MeterEventRow, r: dict[str, Any], *, executed: bool) -> None:
        m.possibly_executed = executed
        m.key_generation = max(m.key_generation, r["key_generation"])
        m.attempts_used += r["attempt_used"]
        if r["state"] == "dead":
            m.state, m.next_attempt_us = "dead", None
            m.dead_kind = "ambiguous" if executed else (r["dead_kind"] or "refused")
            self.park_dead(m)
            return
        m.state = "ambiguous" if executed else r["state"]
        m.next_attempt_us = self.now_us + (r["retry_delay_ms"] or 0) * 1_000


def _together(u: Uncovered) -> tuple[int, int, int]:
    """What becomes one request: a window's entries, or a single one."""
    return u.start_us, 0 if u.occurred_us is None else u.entry_id, u.end_us


def _within_digits(group: list[Uncovered]) -> list[Uncovered]:
    """As many of the group, in order, as one request's value can carry."""
    running = 0
    for number, u in enumerate(sorted(group, key=lambda u: u.entry_id)):
        running += u.delta
        if abs(running) > UNITS_MAX:
            return group[:number]
    return group
