"""Statements of `queries_rejections.sql`: what Stripe accepted and took back later."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tests.simulation.ledger.reconciling import ADOPTED, REPORTED, Reconciling
from tests.simulation.ledger.rows import MeterEventRow, Rejection

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000


def _reason(report: str) -> str:
    return f"{REPORTED} {report} counts more requests than it names"


class Rejecting(Reconciling):
    """Reports, the requests they name, and what becomes of those."""

    def known_reports(self, ids: Sequence[str]) -> list[tuple[str]]:
        return [(event_id,) for event_id in ids if event_id in self.tables.reports]

    def note_report(self, report: str, samples: str, reach: str) -> bool:  # noqa: ARG002 - no sample names an answer alone
        told = msgspec.json.decode(report)
        event_id = told["event_id"]
        if event_id in self.tables.reports:
            return False
        self.tables.reports[event_id] = told
        named = []
        for sample in msgspec.json.decode(samples):
            found = [
                m.meter_event_id
                for m in self.tables.meter_events
                if m.identifier == sample["identifier"]
            ]
            named += found
            self.tables.rejections.append(
                Rejection(
                    event_id,
                    sample["identifier"],
                    sample["key_generation"],
                    found[0] if found else None,
                )
            )
        self.note("reported", event_id, *named)
        return True

    def _windows_about(self, report: str, reach: str) -> Iterator[MeterEventRow]:
        """Requests that the errors beyond a report's samples may be of."""
        told, within = self.tables.reports[report], msgspec.json.decode(reach)
        if not told["unnamed"]:
            return
        for a in self.tables.attempts:
            m = self.meter_event(a.meter_event_id)
            since_us = told["start_us"] - within["before_us"]
            if (
                since_us <= a.started_us < told["end_us"] + within["after_us"]
                and told["event_name"] in (None, m.event_name)
                and m.event_name not in told["not_of"]
                and a.outcome not in within["never_accepted"]
                and a.http_status != 400
                and not (m.rejected_us is not None and m.dead_kind == "refused")
            ):
                yield m

    def doubt_unnamed(self, report: str, reach: str) -> None:
        for m in self._windows_about(report, reach):
            self.doubt(m.customer, m.event_name, m.start_us, _reason(report))

    def narrow_doubt(self, events: Sequence[int], reach: str) -> None:
        """What became known narrows what other reports may be of."""
        concerned = {(m.customer, m.event_name) for m in map(self.meter_event, events)}
        for report in self.tables.reports:
            doubts = [d for d in self.tables.doubts if d.open and d.reason == _reason(report)]
            if any((d.customer, d.event_name) in concerned for d in doubts):
                left = {
                    (m.customer, m.event_name, m.start_us - m.start_us % HOUR_US)
                    for m in self._windows_about(report, reach)
                }
                for d in doubts:
                    d.open = (d.customer, d.event_name, d.start_us) in left

    def freeze(self, requests: str) -> list[tuple[int, bool]]:
        """An identifier that a report named before this ledger knew it is spent: not sent."""
        made = []
        for number, sendable in super().freeze(requests):
            spent = [
                r
                for r in self.tables.rejections
                if r.meter_event_id is None and r.identifier == self.meter_event(number).identifier
            ]
            for r in spent:
                r.meter_event_id = number
            if spent:
                decision = {"meter_event_id": number, "dead_kind": "ambiguous"}
                self.take_back(msgspec.json.encode([decision]).decode())
            made.append((number, sendable and not spent))
        return made

    def lock_rejected(self, report: str | None, reach: str) -> list[int] | None:  # noqa: ARG002 - as above
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
                reason = (
                    f"meter event {m.meter_event_id} was rejected, and may have been sent again"
                )
                self.doubt(m.customer, m.event_name, m.start_us, reason)
        self.wake(lanes)

    def take_back_unnamed(self, s: dict[str, Any]) -> str:
        """What Stripe rejected and did not name, told by its sums: dead until it is sent anew."""
        key = s["customer"], s["event_name"], s["start_us"]
        now = self.cells().get(key)
        units = 0 if now is None else sum(u for n, u in now["reported"] if n in s["requests"])
        if now is None or now["in_flight"] or not now["ready"] or now["doubtful"]:
            return "moved"
        if any(reason.startswith(ADOPTED) for reason in now["reasons"]):
            return "moved"
        if (now["recorded"], units) != (s["recorded"], s["units"]):
            return "moved"
        self.note("taken back unnamed", *key, s["requests"])
        reports = [
            d.reason.split()[2] for d in self.doubts_of(key) if d.reason.startswith(REPORTED)
        ]
        for number in s["requests"]:
            identifier = self.meter_event(number).identifier or ""
            self.tables.rejections.append(Rejection(min(reports), identifier, None, number))
        told = [{"meter_event_id": n, "dead_kind": "refused"} for n in s["requests"]]
        self.take_back(msgspec.json.encode(told).decode())
        for d in self.doubts_of(key):
            d.open = False
        return "taken_back"

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

    def unanswered(self, cause: str, *, refused: bool) -> None:
        """Kept for people alone: no amount depends on it."""
