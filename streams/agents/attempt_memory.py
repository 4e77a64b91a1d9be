"""Lanes of the ledger, with the last attempt remembered beside it: one that lacks it went back.

Positions say what a ledger has of the logs. While no usage comes they stand still, and a restored
ledger could have forgotten nothing but what was sent: it would cut, freeze and send it once more
under other names. So the last attempt that any publisher made is remembered here, before its first
byte leaves, and asked for before the next ones are lent. Within a second or two it also stands in
the group's offsets, for workers with new disks.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import structlog

from streams.core.instant import wire_text
from streams.core.lane import Claim, LastAttempt, Settlement
from streams.engine.errors import StateUnavailable
from streams.ports import AttemptLedger, LedgerUnavailableError

log = structlog.get_logger("publish")


class Keeper(Protocol):
    """Where it outlives the process."""

    def read(self) -> LastAttempt | None:
        """What was written last; None for nothing."""
        ...

    def write(self, last: LastAttempt) -> None:
        """Replaces what was written. Raises `OSError`."""
        ...


class AttemptMemory:
    """A `LaneLedger` for one publisher, and what it remembers of the ledger's attempts."""

    def __init__(self, ledger: AttemptLedger, keeper: Keeper) -> None:
        self._ledger = ledger
        self._keeper = keeper
        self._last = keeper.read()
        self.went_back: str | None = None
        """Why nothing is published; None while the ledger has what is remembered."""

    async def stands(self) -> bool:
        """Whether the ledger still has the last attempt; False when it cannot say.

        Asked before anything is lent. A difference that a person has adopted is forgotten here too.
        """
        asked = self._last
        try:
            answer = await self._ledger.attempt_stands(asked)
        except LedgerUnavailableError as error:
            log.warning("ledger_unavailable", doing="attempts", error=str(error))
            return False
        if not answer.stands and asked is not None:
            self.went_back = (
                f"the ledger lacks attempt {asked.attempt_id} of "
                f"{wire_text(asked.started_us)}: it was restored from a backup or failed "
                "over. Nothing is published until `tailrace ledger adopt` has settled it."
            )
            log.critical("ledger_went_back", message=self.went_back)
            return False
        self.went_back = None
        # Others' attempts as well: whoever made them may be gone when the ledger goes back. What
        # was lent or learned while the answer was on its way is newer than it.
        if self._last is asked:
            self._remember(answer.last)
        return True

    def learn(self, notes: Iterable[str]) -> None:
        """Takes over what any worker noted in the group's offsets, if it is newer.

        Call it before `stands`: a worker with a new disk remembers nothing by itself.
        """
        for note in notes:
            with contextlib.suppress(msgspec.DecodeError):
                noted = msgspec.json.decode(note, type=LastAttempt)
                if self._last is None or noted.started_us > self._last.started_us:
                    self._remember(noted)

    def note(self) -> str:
        """What others are to learn, as text; from any thread."""
        last = self._last
        return "" if last is None else msgspec.json.encode(last).decode()

    async def cut_entries(self, limit: int) -> int:
        """See `LaneLedger`."""
        return await self._ledger.cut_entries(limit)

    async def claim(self, worker: str, limit: int, lease_s: int) -> Sequence[Claim]:
        """Lends lanes; their attempts are remembered before anybody can send.

        None by a ledger that was put back since it was last asked: lent by it, they would take the
        place of what is remembered, and nobody could notice any more.

        Raises:
            LedgerUnavailableError: no answer; the lanes return with their leases.
            StateUnavailable: they cannot be remembered, so they must not be sent.
        """
        claims = await self._ledger.claim(worker, limit, lease_s, self._last)
        if claims:
            newest = max(claims, key=lambda claim: claim.attempt_id)
            self._remember(LastAttempt(newest.attempt_id, newest.now_us))
        return claims

    async def settle(self, settlement: Settlement) -> None:
        """See `LaneLedger`."""
        await self._ledger.settle(settlement)

    def _remember(self, last: LastAttempt | None) -> None:
        if last is not None and last != self._last:
            try:
                self._keeper.write(last)
            except OSError as error:
                # The disk of the state, under the state's own name: whoever meets it first.
                raise StateUnavailable(
                    f"the last attempt cannot be remembered: {error}: check free space and "
                    "permissions of the data directory"
                ) from error
            self._last = last
