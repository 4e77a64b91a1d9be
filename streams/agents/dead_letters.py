"""Dead meter events in the ledger → records of usage.dead-letter, each at least once.

The ledger's row is the truth and the queue; the topic is the log for whoever reads it there.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from streams import topics
from streams.core.dead_letter import DeadMeterEvent, record_of
from streams.ports import LedgerUnavailableError, Outputs, UndeliveredError

_LIMIT: Final = 200
log = structlog.get_logger("dead_letters")


class DeadLetterLedger(Protocol):
    """Where dead meter events are found and marked."""

    async def dead_letters(self, limit: int) -> Sequence[DeadMeterEvent]:
        """Those that the topic does not have yet."""
        ...

    async def dead_letters_published(self, parked_ids: list[int]) -> None:
        """The topic has them now."""
        ...


class DeadLetterPump:
    """Copies dead letters from the ledger to the topic."""

    def __init__(self, ledger: DeadLetterLedger, outputs: Outputs) -> None:
        self._ledger = ledger
        self._outputs = outputs

    async def pump(self) -> None:
        """One round; a ledger or a broker that is away is waited out: nothing is marked then.

        Raises:
            OutputsDeadError: only a new process helps.
        """
        try:
            while letters := await self._ledger.dead_letters(_LIMIT):
                for letter in letters:
                    self._outputs.produce(topics.DEAD_LETTER, *record_of(letter))
                await self._outputs.flush()
                await self._ledger.dead_letters_published([one.parked_id for one in letters])
        except LedgerUnavailableError as error:
            log.warning("ledger_unavailable", doing="dead letters", error=str(error))
        except UndeliveredError as error:
            log.warning("dead_letters_undelivered", error=str(error))
