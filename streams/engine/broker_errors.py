"""What librdkafka says of brokers it cannot reach → a line at the beginning, one at the end.

librdkafka tells of a dead broker many times a second or, where the text stays the same, twice a
minute; it never tells that the broker is back. So an outage is over after a time without an error.
"""

from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import KafkaError

from streams.engine.kafka_faults import text_of
from streams.engine.log_guard import Seconds

TOLD_EVERY_S: Final = 30.0
QUIET_S: Final = 60.0
"""librdkafka repeats an unchanged error of a broker after 30 s and one pause of its own (10 s)."""
log = structlog.get_logger("engine")


class BrokerErrors:
    """Errors of the group's consumer, and since when they come; the feeder's thread only."""

    def __init__(self, clock: Seconds, wall: Callable[[], str]) -> None:
        self.count = 0
        self.since: str | None = None
        """When the first of the present errors came; None while there are none."""
        self._clock = clock
        self._wall = wall
        self._last_s = 0.0
        self._told_s = 0.0

    def note(self, error: KafkaError) -> None:
        """An error that the consumer tells of by itself; logs it now and then."""
        self.count += 1
        self._last_s = self._clock()
        if self.since is None:
            self.since = self._wall()
        elif self._last_s - self._told_s < TOLD_EVERY_S:
            return
        self._told_s = self._last_s
        log.warning("broker_error", since=self.since, error=text_of(error), errors=self.count)

    def look(self) -> None:
        """Ends an outage of which nothing has been heard for long enough."""
        if self.since is not None and self._clock() - self._last_s >= QUIET_S:
            log.warning("broker_errors_over", since=self.since)
            self.since = None
