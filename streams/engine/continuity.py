"""A jump in the offsets: a hole where no record ever was, or records that must not be missed?"""

from collections.abc import Callable
from contextlib import closing

from confluent_kafka import Consumer, KafkaException

from streams.engine.before import CONTINUE
from streams.engine.errors import LogGap
from streams.engine.log import LogId
from streams.engine.log_reader import LogReader


class Continuity:
    """Looks into the log when a fetch does not continue the table; used by one thread."""

    def __init__(self, consumer: Callable[[], Consumer]) -> None:
        self._consumer = consumer

    def is_hole(self, log: LogId, first: int, offset: int) -> bool:
        """Whether no record lies in first..offset-1; transactions leave such holes.

        False also when the broker cannot be asked: the caller reads again from `first`.

        Raises:
            LogGap: the log begins behind `first`; what lay there was removed.
        """
        with closing(LogReader(self._consumer())) as reader:
            try:
                low, _ = reader.marks(log.topic, log.partition)
                if low > first:
                    raise LogGap(
                        f"{log}: offsets {first} to {low - 1} were removed before they were "
                        f"settled: retention was shorter than the backlog. {CONTINUE}"
                    )
                batches = reader.read(log.topic, log.partition, first, offset, lambda: False)
                return next(batches, None) is None
            except KafkaException:
                return False
