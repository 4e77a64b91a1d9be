"""Lanes of the ledger, with the last attempt remembered beside it: one that lacks it went back.

Positions say what a ledger has of the logs. While no usage comes they stand still, and a restored
ledger could have forgotten nothing but what was sent: it would cut, freeze and send it once more
under other names. So the last attempt that any publisher made is remembered here, before its first
byte leaves, and asked for before the next ones are lent. Within a second or two it also stands in
the group's offsets, for workers with new disks, and for those that were away: whoever has not asked
the ledger for a while may have missed the attempts of others, and that it was put back since.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from streams.core.instant import wire_text
from streams.core.lane import Claim, LastAttempt, Settlement
from streams.engine.errors import StateUnavailable
from streams.engine.group_offsets import Notes
from streams.ports import AttemptLedger, LedgerUnavailableError

APART_S: Final = 30.0
"""No ledger is put back and started between two answers within this: one that ends while it is
asked is a silence, and whoever runs asks all the time. Longer than a cut of entries, which comes
before each claim: a claim would find itself apart again and again.
"""
log = structlog.get_logger("publish")


class Keeper(Protocol):
    """Where it outlives the process."""

    def read(self) -> LastAttempt | None:
        """What was written last; None for nothing."""
        ...

    def write(self, last: LastAttempt) -> None:
        """Replaces what was written. Raises `OSError`."""
        ...


class Others(Protocol):
    """What workers noted in the group's offsets, as it was read last."""

    notes: Notes | None

    def renew_notes(self) -> None:
        """Has them read once more, soon."""
        ...


class AttemptMemory:
    """A `LaneLedger` for one publisher, and what it remembers of the ledger's attempts."""

    def __init__(
        self,
        ledger: AttemptLedger,
        keeper: Keeper,
        elapsed_s: Callable[[], float],
        pause_s: float,
    ) -> None:
        """Args: whose attempts, where the last is kept, a clock, the pause between two looks."""
        self._ledger = ledger
        self._keeper = keeper
        self._elapsed_s = elapsed_s
        self._apart_s = APART_S + 2 * pause_s
        self._heard_s = -math.inf
        """When that was asked which the ledger answered last."""
        self._silent_s = elapsed_s()
        """When it was found silent last; at first nothing is known of it."""
        self._read_s = -math.inf
        """When the notes of others were asked for that were read last."""
        self._last = keeper.read()
        self.went_back: str | None = None
        """Why nothing is published; None while the ledger has what is remembered."""

    @property
    def apart(self) -> bool:
        """Whether attempts of others may be unknown here: notes have to be read anew first.

        The ledger itself tells them with each answer. In a gap between two of its answers one that
        nobody here has heard of could be made, and lost again with all that the ledger knew.
        """
        known_s = max(self._read_s, self._heard_s)
        return (
            self._read_s == -math.inf
            or known_s < self._silent_s
            or self._elapsed_s() - known_s > self._apart_s
        )

    async def stands(self) -> bool:
        """Whether the ledger still has the last attempt; False when it cannot say.

        Asked before anything is lent. A difference that a person has adopted is forgotten here too.
        """
        asked, asked_s = self._last, self._elapsed_s()
        try:
            with self._listening():
                answer = await self._ledger.attempt_stands(asked)
        except LedgerUnavailableError as error:
            log.warning("ledger_unavailable", doing="attempts", error=str(error))
            return False
        self._heard_s = asked_s
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

    def catch_up(self, others: Others) -> bool:
        """Takes over what any worker noted, if it is newer; False while it has to be read anew.

        Call it before `stands`: a worker with a new disk remembers nothing by itself.
        """
        notes = others.notes
        if notes is not None and notes.read_s != self._read_s:
            self._learn(notes.texts)
            self._read_s = notes.read_s
        if self.apart:
            others.renew_notes()
            return False
        return True

    def _learn(self, notes: Iterable[str]) -> None:
        for noted in filter(None, map(_noted, notes)):
            if self._last is None or noted.started_us > self._last.started_us:
                self._remember(noted)

    def note(self, found: str = "") -> str:
        """What others are to learn, as text; from any thread.

        Args:
            found: what stands there. It stays where it is newer: whoever noted it may be gone, and
                this worker may have been away meanwhile.
        """
        last, noted = self._last, _noted(found)
        if noted is not None and (last is None or noted.started_us > last.started_us):
            return found
        return "" if last is None else msgspec.json.encode(last).decode()

    async def cut_entries(self, limit: int) -> int:
        """See `LaneLedger`."""
        with self._listening():
            return await self._ledger.cut_entries(limit)

    async def claim(self, worker: str, limit: int, lease_s: int) -> Sequence[Claim]:
        """Lends lanes; their attempts are remembered before anybody can send.

        None by a ledger that was put back since it was last asked: lent by it, they would take the
        place of what is remembered, and nobody could notice any more. None after a pause either, of
        this process between question and claim: see `apart`.

        Raises:
            LedgerUnavailableError: no answer; the lanes return with their leases.
            StateUnavailable: they cannot be remembered, so they must not be sent.
        """
        with self._listening():
            claims = await self._ledger.claim(
                worker, limit, lease_s, self._last, in_touch=lambda: not self.apart
            )
        if claims:
            newest = max(claims, key=lambda claim: claim.attempt_id)
            self._remember(LastAttempt(newest.attempt_id, newest.now_us))
        return claims

    async def settle(self, settlement: Settlement) -> None:
        """See `LaneLedger`."""
        with self._listening():
            await self._ledger.settle(settlement)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """A ledger that does not answer may be another one when it does."""
        try:
            yield
        except LedgerUnavailableError:
            self._silent_s = self._elapsed_s()
            raise

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


def _noted(text: str) -> LastAttempt | None:
    """The attempt that a note names; None for anything else."""
    try:
        return msgspec.json.decode(text, type=LastAttempt)
    except msgspec.DecodeError:
        return None
