"""Statements of `queries_rejections.sql`: what Stripe accepted and took back later."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.simulation.ledger.reconciling import Reconciling
from tests.simulation.ledger.rows import Rejection

DAY_US = 86_400_000_000


class Rejecting(Reconciling):
    """Reports, the requests they name, and what becomes of those."""

    def known_reports(self, ids: Sequence[str]) -> list[tuple[str]]:
        return [(event_id,) for event_id in ids if event_id in self.tables.reports]

    def note_report(self, report: str, samples: str, lookback_ms: int) -> bool:
        told = msgspec.json.decode(report)
        event_id = told["event_id"]
        if event_id in self.tables.reports:
            return False
        self.tables.reports.append(event_id)
        named = []
        for sample in msgspec.json.decode(samples):
            found = [
                m.meter_event_id
                for m in self.tables.meter_events
                if m.identifier == sample["identifier"]
            ]
            named += found
            self.tables.rejections.append(
                Rejection(event_id, sample["key_generation"], found[0] if found else None)
            )
        self.note("reported", event_id, *named)
        if told["unnamed"]:
            self._doubt_unnamed(told, named, lookback_ms * 1_000)
        return True

    def _doubt_unnamed(self, told: dict[str, Any], named: list[int], lookback_us: int) -> None:
        """Whatever was sent about then, and is not named, may be what was rejected."""
        for a in self.tables.attempts:
            m = self.meter_event(a.meter_event_id)
            since_us = told["start_us"] - lookback_us
            about_then = since_us <= a.started_us < told["end_us"] + lookback_us
            if about_then and m.meter_event_id not in named:
                reason = f"error report {told['event_id']}"
                self.doubt(m.customer, m.event_name, m.start_us, reason)

    def lock_rejected(self, report: str | None) -> list[int] | None:
        if report is None:
            found = [
                m.meter_event_id
                for m in self.tables.meter_events
                if m.rejected_us is not None and m.state == "dead" and m.dead_kind == "ambiguous"
            ]
        else:
            found = [
                r.meter_event_id
                for r in self.tables.rejections
                if r.event_id == report and r.meter_event_id is not None
            ]
        return sorted(set(found)) or None

    def accused(self, events: Sequence[int]) -> list[tuple[Any, ...]]:
        rows = []
        for m in map(self.meter_event, events):
            named = [
                r.key_generation
                for r in self.tables.rejections
                if r.meter_event_id == m.meter_event_id
            ]
            attempts = [self.tables.attempts[n - 1] for n in m.attempts]
            tried = [(a.key_generation, a.outcome, a.http_status) for a in attempts]
            known = m.rejected_us is not None
            rows.append((m.meter_event_id, m.state, m.dead_kind, known, named, tried))
        return rows

    def take_back(self, decisions: str) -> None:
        lanes: dict[int, None] = {}
        for d in msgspec.json.decode(decisions):
            m = self.meter_event(d["meter_event_id"])
            lanes[m.lane_id] = None
            if d["dead_kind"] is None:
                continue
            self.note("taken back", m.meter_event_id, d["dead_kind"])
            m.state, m.dead_kind, m.next_attempt_us = "dead", d["dead_kind"], None
            m.rejected_us = m.rejected_us or self.now_us
            self.park_dead(m)
            if d["dead_kind"] == "ambiguous":
                m.possibly_executed = True
                reason = f"meter event {m.meter_event_id} was rejected, and sent again"
                self.doubt(m.customer, m.event_name, m.start_us, reason)
        self.wake(lanes)

    def claim_sweep(self, pause_ms: int) -> int | None:
        tables, now_us = self.tables, self.now_us
        claimed_us = tables.sweep_claimed_us
        if claimed_us is not None and claimed_us > now_us - pause_ms * 1_000:
            return None
        tables.sweep_claimed_us = now_us
        if tables.swept_until_us is None:
            return now_us - 30 * DAY_US
        return tables.swept_until_us - DAY_US

    def swept(self, until_us: int) -> None:
        self.tables.swept_until_us = max(self.tables.swept_until_us or 0, until_us)
