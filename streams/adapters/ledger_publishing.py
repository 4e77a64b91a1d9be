"""Lanes of the ledger: claim → a frozen request with its attempt written; settle → what it did.

A claim is one transaction: lanes are locked, waiting requests are taken up or new ones frozen from
entries, the attempts are written, the lanes are lent. Nobody else can send for them until the
lease ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from streams.adapters.ledger_pool import (
    Connection,
    LedgerPool,
    LedgerRefusedError,
    Statements,
)
from streams.adapters.together import Together
from streams.core.dead_letter import DeadMeterEvent
from streams.core.lane import Claim, LastAttempt, Settlement, Standing
from streams.core.meter_event import (
    Cell,
    MeterEvent,
    Origin,
    UnsendableMeterEventError,
    freeze_event,
    freeze_window,
)
from streams.crash_points import CrashAt, never


@dataclass(frozen=True, slots=True)
class Candidate:
    """Entries of one lane that may become one request: a window's, or a single one.

    `event_id` and `occurred_at_us` are there for a meter that publishes event by event.
    """

    lane_id: int
    customer: str
    event_name: str
    window_start_us: int
    window_end_us: int
    units: int
    entry_ids: list[int]
    event_id: str | None
    occurred_at_us: int | None
    generation: int
    attempts_used: int
    now_us: int


class LedgerPublishing:
    """Where publishing finds its work and writes what became of it."""

    def __init__(
        self, pool: LedgerPool, account: str, *, livemode: bool, crash_at: CrashAt = never
    ) -> None:
        self._pool = pool
        self._crash_at = crash_at
        self._account = account
        self._livemode = livemode
        self._sql = Statements("queries_publishing.sql")
        self._catalogue = Statements("queries_catalogue.sql")
        self._settling = Together(self._settle, LedgerRefusedError)

    async def cut_entries(self, limit: int) -> int:
        """Cuts the entries of at most `limit` series that are due; gives the number cut.

        Raises:
            LedgerUnavailableError: no answer; what was due still is.
        """
        return int(
            await self._pool.run(
                lambda conn: self._sql.value(conn, "cut_entries", {"limit": limit})
            )
        )

    async def claim(
        self,
        worker: str,
        limit: int,
        lease_s: int,
        last: LastAttempt | None = None,
        in_touch: Callable[[], bool] | None = None,
    ) -> list[Claim]:
        """Lends at most `limit` lanes until `lease_s` from now, each with its attempt written.

        None while publishing is halted. Fewer than there are when lanes have only amounts that
        wait (for time, or negative ones for what is unsettled).

        Args:
            worker: who borrows them.
            limit: of lanes.
            lease_s: seconds.
            last: an attempt that this ledger has to have: where it lacks it publishing is halted,
                in the transaction of the claim. Between a question of its own and the claim the
                ledger could be put back.
            in_touch: whether the worker knows all attempts; none is lent else. Asked after this
                ledger's first answer within the transaction, which ends with the ledger.

        Raises:
            LedgerUnavailableError: no answer. If the claim was kept all the same, its lanes return
                with the lease and the attempts count as possibly executed.
        """

        async def stand_and_claim(conn: Connection) -> list[Claim]:
            if not (await self._standing(conn, last)).stands:
                return []
            if in_touch is not None and not in_touch():
                return []
            return await self._claim(conn, worker, limit, lease_s)

        return await self._pool.run(stand_and_claim)

    async def attempt_stands(self, last: LastAttempt | None) -> Standing:
        """Whether this ledger has an attempt, or was adopted since; if not, publishing is halted.

        Raises:
            LedgerUnavailableError: no answer.
        """
        return await self._pool.run(lambda conn: self._standing(conn, last))

    async def settle(self, settlement: Settlement) -> None:
        """Writes what an attempt did; a success counts however late it comes.

        Settlements that are told while others are being written are written together next.

        Raises:
            LedgerUnavailableError: no answer; say it again, a repetition changes nothing.
            LedgerRefusedError: the ledger refuses this settlement, however it is told.
        """
        await self._settling.add(settlement)

    async def _settle(self, settlements: Sequence[Settlement]) -> None:
        """One transaction for all of them."""
        text = msgspec.json.encode([_settled(one) for one in settlements]).decode()
        await self._pool.run(lambda conn: self._sql.run(conn, "settle_many", {"settlements": text}))

    async def dead_letters(self, limit: int) -> list[DeadMeterEvent]:
        """Dead meter events that are still to be written to the dead-letter topic.

        Raises:
            LedgerUnavailableError: no answer.
        """
        rows = await self._pool.run(
            lambda conn: self._sql.rows(conn, "dead_letters", {"limit": limit})
        )
        return [DeadMeterEvent(*row) for row in rows]

    async def dead_letters_published(self, parked_ids: list[int]) -> None:
        """Marks dead letters as written to the topic; call it after the broker has them.

        Raises:
            LedgerUnavailableError: no answer; they will be written once more.
        """
        await self._pool.run(
            lambda conn: self._sql.run(conn, "dead_letters_published", {"items": parked_ids})
        )

    async def _standing(self, conn: Connection, last: LastAttempt | None) -> Standing:
        attempt_id, started_us = last or (None, None)
        values = {"attempt_id": attempt_id, "started_us": started_us}
        stands, *newest = (await self._sql.rows(conn, "attempt_stands", values))[0]
        return Standing(stands, None if newest[0] is None else LastAttempt(*newest))

    async def _claim(self, conn: Connection, worker: str, limit: int, lease_s: int) -> list[Claim]:
        lanes = await self._sql.value(conn, "lock_lanes", {"limit": limit})
        if not lanes:
            return []
        await self._sql.run(conn, "merge_pending", {"lanes": lanes})
        retries: dict[int, int] = dict(await self._sql.rows(conn, "due_retries", {"lanes": lanes}))
        frozen = await self._freeze_lanes(conn, [lane for lane in lanes if lane not in retries])
        idle = [lane for lane in lanes if lane not in retries and lane not in frozen]
        if idle:
            await self._sql.run(conn, "rest_lanes", {"lanes": idle})
        events = [*retries.values(), *frozen.values()]
        if not events:
            return []
        lease = {"events": events, "worker": worker, "lease_ms": lease_s * 1_000}
        attempts = await self._sql.value(conn, "lend", lease)
        rows = await self._sql.rows(conn, "lent", {"attempts": attempts})
        self._crash_at("attempts_written")
        return [Claim(*row) for row in rows]

    async def _freeze_lanes(self, conn: Connection, lanes: list[int]) -> dict[int, int]:
        """Freezes one request per lane where there is one; lane → meter event.

        Entries that add up to zero are settled without a request, and a spent identifier is not
        sent: the lane is asked again.
        """
        frozen: dict[int, int] = {}
        origin = await self._origin(conn) if lanes else None
        while lanes and origin is not None:
            rows = await self._sql.rows(conn, "freeze_candidates", {"lanes": lanes})
            candidates = [Candidate(*row) for row in rows]
            requests = []
            for candidate in candidates:
                request = await self._request(conn, origin, candidate)
                if request is not None:
                    requests.append(request)
            lanes = []
            if requests:
                text = msgspec.json.encode(requests).decode()
                made = await self._sql.rows(conn, "freeze", {"requests": text})
                for request, (meter_event_id, sendable) in zip(requests, made, strict=True):
                    if sendable:
                        frozen[request["lane_id"]] = meter_event_id
                    else:
                        lanes.append(request["lane_id"])
        return frozen

    async def _request(
        self, conn: Connection, origin: Origin, candidate: Candidate
    ) -> dict[str, Any] | None:
        """The row to insert; None where Stripe could not take it: that lane is paused."""
        try:
            event = freeze(origin, candidate) if candidate.units else None
        except UnsendableMeterEventError as error:
            pause = {"lane": candidate.lane_id, "reason": str(error)}
            await self._sql.run(conn, "pause_lane", pause)
            return None
        return {
            "lane_id": candidate.lane_id,
            "customer": candidate.customer,
            "event_name": candidate.event_name,
            "window_start_us": candidate.window_start_us,
            "window_end_us": candidate.window_end_us,
            "per_entry": candidate.occurred_at_us is not None,
            "units": candidate.units,
            "generation": candidate.generation,
            "attempts_used": candidate.attempts_used,
            "entry_ids": candidate.entry_ids,
            "value": None if event is None else str(event.value),
            "timestamp_s": None if event is None else event.timestamp_s,
            "identifier": None if event is None else event.identifier,
            "payload_hash": None if event is None else event.payload_hash,
        }

    async def _origin(self, conn: Connection) -> Origin:
        # Asked each time: a ledger that is adopted under a running worker gets another name.
        ledger_id = str(await self._catalogue.value(conn, "ledger_id"))
        return Origin(self._account, self._livemode, ledger_id)


def freeze(origin: Origin, candidate: Candidate) -> MeterEvent:
    """The frozen request of a candidate, dated as its meter publishes.

    Raises:
        UnsendableMeterEventError: Stripe could not take the value or a name.
    """
    cell = Cell(
        candidate.customer,
        candidate.event_name,
        candidate.window_start_us,
        candidate.window_end_us,
    )
    if candidate.occurred_at_us is None:
        return freeze_window(
            origin,
            cell,
            candidate.units,
            candidate.entry_ids[0],
            candidate.generation,
            candidate.now_us,
        )
    return freeze_event(
        origin,
        cell,
        candidate.units,
        candidate.event_id or f"entry:{candidate.entry_ids[0]}",
        candidate.generation,
        candidate.occurred_at_us,
    )


def _settled(settlement: Settlement) -> dict[str, Any]:
    claim, evidence = settlement.claim, settlement.evidence
    return {
        "attempt_id": claim.attempt_id,
        "meter_event_id": claim.meter_event_id,
        "lane_id": claim.lane_id,
        "state": settlement.state,
        "dead_kind": settlement.dead_kind,
        "key_generation": settlement.key_generation,
        "possibly_executed": settlement.possibly_executed,
        "attempt_used": settlement.attempt_used,
        "retry_delay_ms": settlement.retry_delay_ms,
        "outcome": evidence.outcome,
        "http_status": evidence.http_status,
        "code": evidence.code,
        "message": evidence.message,
        "request_id": evidence.request_id,
        "cause": evidence.cause,
    }
