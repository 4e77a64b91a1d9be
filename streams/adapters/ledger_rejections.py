"""Error reports in the ledger: one transaction a report, so that it is noted with all it means.

Noting, judging and taking back happen under the locks of the lanes concerned: an answer that is
being settled meanwhile comes before or after, never in between.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from streams.adapters.ledger_pool import Connection, LedgerPool, Statements
from streams.adapters.ledger_rows import visible
from streams.core.rejection import (
    CLOCKS_US,
    NEVER_ACCEPTED,
    SENT_BEFORE_US,
    Accused,
    ErrorReport,
    TakeBack,
    Tried,
    UnreadableReport,
    decide,
)
from streams.ports import Concerned, Noted, NotedBy

_REACH: Final = msgspec.json.encode(
    {
        "before_us": SENT_BEFORE_US,
        "after_us": CLOCKS_US,
        "never_accepted": sorted(NEVER_ACCEPTED),
    }
).decode()
"""Which attempts a report may be of."""


class LedgerRejections:
    """Where reports are noted."""

    def __init__(self, pool: LedgerPool) -> None:
        self._pool = pool
        self._sql = Statements("queries_rejections.sql")

    async def known_reports(self, event_ids: Sequence[str]) -> set[str]:
        """Which of these the ledger has.

        Raises:
            LedgerUnavailableError: no answer.
        """
        parameters = {"ids": list(event_ids)}
        rows = await self._pool.run(lambda conn: self._sql.rows(conn, "known_reports", parameters))
        return {event_id for (event_id,) in rows}

    async def note_report(
        self,
        report: ErrorReport | UnreadableReport,
        body: bytes,
        concerned: Concerned,
        noted_by: NotedBy,
    ) -> Noted:
        """Notes a report, and takes back what it names; a repetition changes nothing.

        Args:
            report: as read.
            body: the event as Stripe told it, kept as evidence.
            concerned: whose errors it may count.
            noted_by: the way by which it came first.

        Raises:
            LedgerUnavailableError: no answer; nothing was kept, or all of it: say it again.
        """
        parameters = {
            "report": _json(_report(report, body, concerned, noted_by)),
            "samples": _json(_samples(report)),
            "reach": _REACH,
        }

        async def work(conn: Connection) -> Noted:
            if not await self._sql.value(conn, "note_report", parameters):
                return Noted(repeated=True, taken_back=0)
            taken_back = await self._judge(conn, report.event_id)
            about = {"report": report.event_id, "reach": _REACH}
            await self._sql.run(conn, "doubt_unnamed", about)
            return Noted(repeated=False, taken_back=taken_back)

        return await self._pool.run(work)

    async def judge_again(self) -> int:
        """Looks again at what a later attempt left in doubt; how many it decided.

        An attempt that was in flight when its meter event was rejected has an outcome by now, and
        one that was only named by its answer has that answer.

        Raises:
            LedgerUnavailableError: no answer.
        """
        return await self._pool.run(lambda conn: self._judge(conn, None))

    async def claim_sweep(self, pause_s: float) -> int | None:
        """From when on to read Stripe's reports, microseconds since 1970 UTC.

        None where a reader of any worker did so within `pause_s`.

        Raises:
            LedgerUnavailableError: no answer.
        """
        parameters = {"pause_ms": int(pause_s * 1_000)}
        since_us: int | None = await self._pool.run(
            lambda conn: self._sql.value(conn, "claim_sweep", parameters)
        )
        return since_us

    async def swept(self, until_us: int) -> None:
        """Remembers that all reports up to then are noted.

        Raises:
            LedgerUnavailableError: no answer; they will be read once more.
        """
        await self._pool.run(lambda conn: self._sql.run(conn, "swept", {"until_us": until_us}))

    async def unanswered(self, cause: str, *, refused: bool) -> None:
        """Remembers that Stripe gave no answer; `swept` ends it.

        Raises:
            LedgerUnavailableError: no answer.
        """
        said = {"cause": cause, "refused": refused}
        await self._pool.run(lambda conn: self._sql.run(conn, "unanswered", said))

    async def _judge(self, conn: Connection, event_id: str | None) -> int:
        named = {"report": event_id, "reach": _REACH}
        events = await self._sql.value(conn, "lock_rejected", named)
        if not events:
            return 0
        rows = await self._sql.rows(conn, "accused", {"events": events})
        decisions = []
        for meter_event_id, state, dead_kind, rejected, named, tried in rows:
            accused = Accused(
                meter_event_id, state, dead_kind, rejected, tuple(named),
                tuple(Tried(*one) for one in tried),
            )  # fmt: skip
            decision = decide(accused)
            kind = decision.dead_kind if isinstance(decision, TakeBack) else None
            decisions.append({"meter_event_id": meter_event_id, "dead_kind": kind})
        await self._sql.run(conn, "take_back", {"decisions": _json(decisions)})
        await self._sql.run(conn, "narrow_doubt", {"events": events, "reach": _REACH})
        return sum(one["dead_kind"] is not None for one in decisions)


def _report(
    report: ErrorReport | UnreadableReport, body: bytes, concerned: Concerned, noted_by: str
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "event_id": visible(report.event_id),
        "event_type": visible(report.event_type),
        "event_name": visible(concerned.event_name),
        "error_count": 0,
        "unnamed": 0,
        "not_of": sorted(concerned.not_of),
        "body": visible(body.decode("utf-8", "replace")),
        "noted_by": noted_by,
    }
    if isinstance(report, ErrorReport):
        row |= {
            "meter_id": visible(report.meter_id),
            "start_us": report.start_us,
            "end_us": report.end_us,
            "error_count": report.error_count,
            "unnamed": report.unnamed,
        }
    return row


def _samples(report: ErrorReport | UnreadableReport) -> list[dict[str, Any]]:
    if isinstance(report, UnreadableReport):
        return []
    return [
        {
            "idempotency_key": visible(sample.idempotency_key),
            "code": visible(sample.code),
            "identifier": visible(sample.identifier),
            "request_id": visible(sample.request_id),
            "key_generation": sample.key_generation,
            "message": visible(sample.message),
        }
        for sample in report.samples
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
