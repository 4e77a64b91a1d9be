"""Hop 9: Stripe's error reports → rejected meter events dead in the ledger, by two ways.

The webhook is quick and may lose; the sweep reads Stripe's own list and loses nothing. Both end in
the same ledger transaction, which knows a report by its event id, so order and repetition are all
one. A call is answered with success only after that transaction: till then Stripe tells it again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import structlog

from streams.adapters.clock import Clock
from streams.adapters.ledger_pool import LedgerRefusedError
from streams.adapters.metrics import Sample
from streams.adapters.stripe import StripeUnreadableError
from streams.adapters.stripe_events import RefusedCall
from streams.core.observation import cause_of, is_refusal, is_silence
from streams.core.rejection import (
    REPORT_TYPES,
    SENT_BEFORE_US,
    ErrorReport,
    UnreadableReport,
    read,
)
from streams.ports import (
    Concerned,
    LedgerUnavailableError,
    Noted,
    NotedBy,
    RejectionLedger,
    ReportSource,
    Told,
)

_AGAIN: Final = (LedgerUnavailableError, LedgerRefusedError, StripeUnreadableError)
"""Nothing was noted; it is told or read again."""
AGAIN_S: Final = 60.0
"""After a sweep that Stripe did not answer."""
log = structlog.get_logger("rejections")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a call is answered."""

    status: int
    """HTTP status; Stripe repeats what is not 2xx."""
    text: str


@dataclass(slots=True)
class RejectionFigures:
    """Counts since the start, for metrics."""

    noted: Counter[str] = field(default_factory=Counter)
    """Reports by their way."""
    repeated: int = 0
    unreadable: int = 0
    taken_back: int = 0
    sweeps: int = 0
    failures: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    """Calls about events of other types, by type."""
    refused: Counter[str] = field(default_factory=Counter)
    """Calls that were not Stripe's, by the reason."""


def report_samples(figures: RejectionFigures) -> Iterator[Sample]:
    """The figures of reports, behind /metrics of workers and webhooks."""
    for way, count in figures.noted.items():
        yield "usage_error_reports_total", way, count
    yield "usage_error_reports_repeated_total", None, figures.repeated
    yield "usage_error_reports_unreadable_total", None, figures.unreadable
    yield "usage_meter_events_rejected_total", None, figures.taken_back
    yield "usage_report_sweeps_total", None, figures.sweeps
    yield "usage_report_failures_total", None, figures.failures
    for why, count in figures.refused.items():
        yield "usage_webhooks_refused_total", why, count
    for kind, count in figures.ignored.items():
        yield "usage_webhooks_ignored_total", kind, count


class Rejections:
    """Reads error reports and has the ledger act on them."""

    def __init__(self, ledger: RejectionLedger, source: ReportSource, clock: Clock) -> None:
        self._ledger = ledger
        self._source = source
        self._clock = clock
        self.figures = RejectionFigures()

    async def receive(self, opened: Told | RefusedCall) -> Receipt:
        """One call of the webhook, its signature checked, to its answer."""
        if isinstance(opened, RefusedCall):
            self.figures.refused[opened.why] += 1
            return Receipt(400, f"refused: {opened.why}")
        event_id, event_type = opened
        if event_type not in REPORT_TYPES:
            self.figures.ignored[event_type] += 1
            return Receipt(200, f"ignored: {event_type}")
        try:
            noted = await self._take(opened, "webhook")
        except _AGAIN as error:
            self.figures.failures += 1
            log.warning("report_not_noted", report=event_id, error=str(error))
            return Receipt(503, "not noted; tell it again")
        return Receipt(200, f"{'noted before' if noted.repeated else 'noted'}: {event_id}")

    async def sweep(self, pause_s: float) -> int | None:
        """Reads Stripe's list and notes what is missing; how many were.

        None where somebody did so within `pause_s`. What fails is read again the next time.

        Raises:
            LedgerUnavailableError: no answer of the ledger.
            StripeUnreadableError: none of Stripe.
        """
        since_us = await self._ledger.claim_sweep(pause_s)
        if since_us is None:
            return None
        began_us = self._clock.now_us()
        try:
            listed = await self._source.reports_since(since_us)
        except StripeUnreadableError as error:
            seen = error.observation
            if is_silence(seen):
                await self._ledger.unanswered(cause_of(seen), refused=is_refusal(seen))
            raise
        known = await self._ledger.known_reports([told.event_id for told in listed])
        missing = [told for told in listed if told.event_id not in known]
        for told in missing:
            await self._take(told, "sweep")
        await self._ledger.swept(began_us)
        self.figures.taken_back += await self._ledger.judge_again()
        self.figures.sweeps += 1
        return len(missing)

    async def keep_sweeping(
        self, pause_s: float, went_back: Callable[[], bool] = lambda: False
    ) -> None:
        """Sweeps for as long as it runs; whoever is away is waited out.

        Where Stripe is away it is asked again soon: status and console know of an outage by this
        while nothing can be sent.

        Args:
            pause_s: between two sweeps of all processes together.
            went_back: whether the ledger knows less than it did; nothing is judged by it then.
        """
        wait_s = pause_s
        while True:
            try:
                if not went_back() and await self.sweep(wait_s) is not None:
                    wait_s = pause_s
            except _AGAIN as error:
                self.figures.failures += 1
                log.warning("sweep_failed", error=str(error))
                wait_s = (
                    min(pause_s, AGAIN_S) if isinstance(error, StripeUnreadableError) else pause_s
                )
            await asyncio.sleep(wait_s)

    async def _take(self, told: Told, noted_by: NotedBy) -> Noted:
        body = await self._source.event(told.event_id)
        report = read(told.event_id, told.event_type, body)
        concerned = Concerned()
        if isinstance(report, UnreadableReport):
            self.figures.unreadable += 1
            log.error("report_unreadable", report=told.event_id, problem=report.problem)
        elif report.vague:
            concerned = await self._concerned(report)
        try:
            noted = await self._ledger.note_report(report, body, concerned, noted_by)
        except LedgerRefusedError as error:
            # What it says cannot be kept as it stands: a person reads it, and nobody stops for it.
            self.figures.unreadable += 1
            log.error("report_refused", report=told.event_id, problem=str(error))
            refused = UnreadableReport(told.event_id, told.event_type, str(error))
            noted = await self._ledger.note_report(refused, body, Concerned(), noted_by)
        self._count(told, noted, noted_by)
        return noted

    async def _concerned(self, report: ErrorReport) -> Concerned:
        if report.meter_id is not None:
            event_name = await self._source.meter_event_name(report.meter_id)
            if event_name is not None:
                return Concerned(event_name)
        # No meter was found: not for an event whose name a meter has taken all the while.
        since_us = report.start_us - SENT_BEFORE_US
        return Concerned(None, await self._source.names_taken_since(since_us))

    def _count(self, told: Told, noted: Noted, noted_by: NotedBy) -> None:
        if noted.repeated:
            self.figures.repeated += 1
            return
        self.figures.noted[noted_by] += 1
        self.figures.taken_back += noted.taken_back
        log.warning("error_report", report=told.event_id, by=noted_by, rejected=noted.taken_back)
