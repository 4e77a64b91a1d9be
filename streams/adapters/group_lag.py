"""The consumer group at the broker → how far each partition of a topic was committed, and its end.

Asked from outside: it never joins the group, so it moves no partition.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

TIMEOUT_S: Final = 5.0


class Lag(NamedTuple):
    """One partition; `committed` is the next offset to read, None before the first commit."""

    partition: int
    end: int
    committed: int | None

    @property
    def records(self) -> int:
        """What the group has not finished; a log that was never read counts whole."""
        return max(0, self.end - (self.committed or 0))


def read_lag(config: Mapping[str, str], topic: str, group: str) -> list[Lag]:
    """Every partition in its order. Blocks for some seconds at most.

    Args:
        config: how the broker is reached.
        topic: whose partitions.
        group: whose commits.

    Raises:
        KafkaException: the broker does not answer, or has no such topic.
        TimeoutError: it answers too slowly.
    """
    admin = AdminClient({"log_level": 2, **config})
    known = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    places = [TopicPartition(topic, number) for number in sorted(known.partitions)]
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library's own
    ends = admin.list_offsets(dict.fromkeys(places, latest), request_timeout=TIMEOUT_S)
    asked = [ConsumerGroupTopicPartitions(group, places)]
    (told,) = admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S).values()
    done = {p.partition: p.offset for p in told.result(TIMEOUT_S).topic_partitions}
    return [
        Lag(
            place.partition,
            ends[place].result(TIMEOUT_S).offset,
            # The broker says a negative number for a partition that was never committed.
            done[place.partition] if done.get(place.partition, -1) >= 0 else None,
        )
        for place in places
    ]
