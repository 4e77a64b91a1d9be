"""Which of librdkafka's errors pass by themselves, which cost the membership, which are final."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        # A client has dropped the broker it was asking: for a while nobody knew of it.
        KafkaError._DESTROY_BROKER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_MEMBERSHIP_LOST: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)
_UNKNOWN: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
_FINAL: Final = frozenset(
    {
        # A fenced or refused member says so in a message whose `fatal()` is False.
        KafkaError._FATAL,
        # After an out-of-range error the partition is never fetched again.
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.UNRELEASED_INSTANCE_ID,
    }
)


def error_of(exception: KafkaException) -> KafkaError:
    """The error inside an exception."""
    error = exception.args[0]
    if not isinstance(error, KafkaError):
        return KafkaError(KafkaError._FAIL, str(error))
    return error


def is_passing(error: KafkaError) -> bool:
    """Whether trying again may help by itself: the broker restarts or moves a leader."""
    return error.code() in _PASSING or error.retriable()


def is_unknown_topic(error: KafkaError) -> bool:
    """Whether the broker does not know the topic or partition, at this moment."""
    return error.code() in _UNKNOWN


def is_membership_lost(error: KafkaError) -> bool:
    """Whether the group has moved on without this member."""
    return error.code() in _MEMBERSHIP_LOST


def is_final(error: KafkaError) -> bool:
    """Whether a consumer that says this will never deliver again."""
    return error.fatal() or error.code() in _FINAL


def text_of(error: KafkaError) -> str:
    """Name and text of an error, for people."""
    return f"{error.name()}: {error.str()}"
