"""What workers wrote of partitions → the counts by which their topic grew.

A ledger that was restored from before several growths must be told of each by itself: partitions
that came together are one log, under a name that holds both counts.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing

from streams import topics
from streams.cli.topic_read import TopicRead, reading
from streams.core.growth import grown_log_id
from streams.core.identity import log_uuid
from streams.core.mark import from_version_1
from streams.engine.errors import PackedRecordDamaged, UnknownPackedVersion
from streams.engine.packed import decode
from streams.settings import Settings


def written_step(settings: Settings, root: str, present: int, there: int) -> int | None:
    """The count that a topic of so many partitions grew to first; None where nothing tells.

    Args:
        settings: of the stack.
        root: the log that the topic's life began with.
        present: how many partitions it had.
        there: how many it has.

    Raises:
        KafkaException: the packed log cannot be read.
    """
    with reading(settings, topics.ADMIT_LOG, "grow") as topic:
        return step_of(_written(topic, range(present, there)), root, present, there)


def step_of(log_ids: Iterable[str], root: str, present: int, there: int) -> int | None:
    """The same, of the logs that new partitions were written for."""
    steps = {
        grown_log_id(root, before, after): (before, after)
        for before in range(present, there, present)
        for after in range(2 * before, there + 1, before)
    }
    counts = {count for log_id in log_ids for count in steps.get(log_id, ())}
    return min(counts - {present}, default=None)


def _written(topic: TopicRead, partitions: Iterable[int]) -> Iterator[str]:
    known = set(topic.partitions())
    for partition in partitions:
        low, high = topic.marks(partition) if partition in known else (0, 0)
        with closing(topic.read(partition, low, min(low + 1, high))) as batches:
            first = next(batches, [])
        for message in first:
            try:
                yield log_uuid(decode(message.value() or b"", from_version_1).topic_id)
            except (PackedRecordDamaged, UnknownPackedVersion):
                continue  # whoever reads this partition says what to do
