"""Is the partition still ours? Asked of the broker itself, because nothing else can tell in time.

Callbacks cannot fire while a chunk is in hand, so a worker that was suspended learns nothing from
them. Amounts do not depend on the answer; it saves outputs that another worker writes as well.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from streams.engine.errors import Fenced
from streams.engine.kafka_faults import error_of, is_membership_lost, text_of
from streams.engine.log_guard import Seconds

_PAUSE_S: Final = 0.1

Commit = Callable[[], None]
"""Commits the applied offset and waits for the answer; raises `KafkaException`."""


class Fence:
    """The question for one chunk."""

    def __init__(
        self, clock: Seconds, fetched_at_s: float, *, session_s: float, commit: Commit, what: str
    ) -> None:
        """Prepare the question.

        Args:
            clock: seconds, suspension counted.
            fetched_at_s: when the records were fetched, by that clock.
            session_s: session timeout; a chunk younger than half of it need not ask.
            commit: the commit that asks.
            what: the chunk, for the error.
        """
        self._clock = clock
        self._fetched_at_s = fetched_at_s
        self._session_s = session_s
        self._commit = commit
        self._what = what

    async def ask(self) -> None:
        """Ask when the chunk is old enough to have been overtaken.

        Raises:
            Fenced: the group has moved on, or does not answer within a session.
        """
        asked_at_s = self._clock()
        if asked_at_s - self._fetched_at_s < self._session_s / 2:
            return
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(None, self._commit)
            except KafkaException as exception:
                error = error_of(exception)
                late = self._clock() - asked_at_s >= self._session_s
                if is_membership_lost(error) or late:
                    raise Fenced(f"{self._what}: {text_of(error)}") from exception
                # A rebalance in progress, or a coordinator that moves.
                await asyncio.sleep(_PAUSE_S)
            else:
                return
