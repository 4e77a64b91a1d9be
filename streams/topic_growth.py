"""Topics that grow in place, and where keys of the events topic moved: counts → offsets.

Kafka never moves a record. After a growth a key is written to a new partition, or stays where it
was; what was written before stays in the old one. Up to which offset of an old partition that is,
its boundary, is what a new partition must know to remember what was counted there.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ListOffsetsResultInfo,
    NewPartitions,
    OffsetSpec,
)

from streams import topics
from streams.engine.kafka_faults import error_of, is_passing, is_unknown_topic
from streams.topics import (
    EVENTS,
    TIMEOUT_S,
    TOPICS,
    TopicsError,
    admin_client,
    answer_of,
)

SKEW_MS: Final = 5 * 60_000
"""By so much the clocks of two brokers may differ, which date the records of their partitions."""

PATIENCE_S: Final = 15.0
"""How long a new partition may have no leader yet, or a broker not know it."""
_PAUSE_S: Final = 0.1
_END: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # confluent_kafka leaves it untyped


def counts(bootstrap: str, security: Mapping[str, str] | None = None) -> dict[str, int]:
    """How many partitions each of our topics has. Blocks up to 15 s.

    Raises:
        TopicsError: one is not there, or the broker does not answer.
    """
    found = topics.counts(bootstrap, security)
    missing = [topic.name for topic in TOPICS if topic.name not in found]
    if missing:
        message = f"{', '.join(missing)}: not there. `tailrace topics apply` creates them"
        raise TopicsError(message)
    return found


def grow(
    bootstrap: str, partitions: int, *, security: Mapping[str, str] | None = None
) -> list[str]:
    """Gives that many partitions to every topic that has fewer; the lines of what was done.

    The events topic is the last of them: once it has new partitions, whatever is made of their
    records has its place. Blocks up to 15 s a topic.

    Raises:
        TopicsError: a topic is not there or has more, or the broker refuses or does not answer.
    """
    existing = counts(bootstrap, security)
    more = [f"{name} has {count}" for name, count in existing.items() if count > partitions]
    if more:
        message = f"partitions: {', '.join(more)}, asked for {partitions}: none can be taken away"
        raise TopicsError(message)
    admin = admin_client(bootstrap, security)
    done = []
    for topic in reversed(TOPICS):
        if existing[topic.name] == partitions:
            continue
        growing = admin.create_partitions(
            [NewPartitions(topic.name, partitions)],
            operation_timeout=TIMEOUT_S,
            request_timeout=TIMEOUT_S,
        )
        answer_of(growing[topic.name], f"grow topic {topic.name}")
        done.append(f"{topic.name} from {existing[topic.name]} to {partitions} partitions")
    return done


def boundaries(
    bootstrap: str, present: int, partitions: int, *, security: Mapping[str, str] | None = None
) -> list[int]:
    """By partition of the events topic before it grew: where its keys had moved for certain.

    While nobody has written to a new partition, that is the end of each old one. Where somebody
    has, it is the first offset of the time at which that began; and some minutes, because a
    boundary that is too high only makes a new partition remember more, and one too low less.

    Blocks up to 15 s a call.

    Args:
        bootstrap: the brokers.
        present: how many it had.
        partitions: how many it was grown to.
        security: as for `topics.apply`.

    Raises:
        TopicsError: the broker does not answer.
    """

    def offsets(numbers: Sequence[int], spec: OffsetSpec) -> list[ListOffsetsResultInfo]:
        return _offsets(bootstrap, security, numbers, spec)

    old, new = range(present), range(present, partitions)
    ends = [found.offset for found in offsets(old, _END)]
    # What retention has taken from there only makes the time later.
    firsts = offsets(new, OffsetSpec.for_timestamp(0))
    begun_ms = [found.timestamp for found in firsts if found.offset >= 0]
    if not begun_ms:
        return ends
    later = offsets(old, OffsetSpec.for_timestamp(min(begun_ms) + SKEW_MS))
    return [
        end if found.offset < 0 else min(found.offset, end)
        for found, end in zip(later, ends, strict=True)
    ]


def _offsets(
    bootstrap: str, security: Mapping[str, str] | None, numbers: Sequence[int], spec: OffsetSpec
) -> list[ListOffsetsResultInfo]:
    until = time.monotonic() + PATIENCE_S
    while True:
        # A client that once found no leader goes on finding none.
        admin = admin_client(bootstrap, security)
        try:
            return _offsets_now(admin, numbers, spec)
        except TopicsError as error:
            if not _passes(error.__cause__) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def _offsets_now(
    admin: AdminClient, numbers: Sequence[int], spec: OffsetSpec
) -> list[ListOffsetsResultInfo]:
    places = [TopicPartition(EVENTS, number) for number in numbers]
    # What a transaction has not committed yet may still be: it lies before the boundary, too.
    asked = admin.list_offsets(
        dict.fromkeys(places, spec),
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=TIMEOUT_S,
    )
    return [answer_of(asked[place], f"read offsets of {EVENTS}") for place in places]


def _passes(cause: BaseException | None) -> bool:
    if not isinstance(cause, KafkaException):
        return False
    error = error_of(cause)
    return is_passing(error) or is_unknown_topic(error) or error.code() == KafkaError._NOENT
