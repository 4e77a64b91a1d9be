"""Topics: one table of every topic, its partitions, retention and clean-up; applied and checked.

Partition count is part of what makes an identity unique, because the memory of ids lives with the
partition. So a topic is created with a generous count, one that differs is refused, and it grows
only as `streams.topic_growth` does it, by a whole multiple that the ledger is told of.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

_DAY_MS: Final = 24 * 3600 * 1000
_SWEEP_MS: Final = 3600 * 1000
"""A broker looks for old segments every few minutes, and deletes a file a minute later."""
TIMEOUT_S: Final = 15.0
_T = TypeVar("_T")


class TopicsError(Exception):
    """The broker's topics are not what this release needs; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `retention_days` is how long a record can be read again."""

    name: str
    retention_days: int
    max_message_bytes: int
    purpose: str

    def config(self) -> dict[str, str]:
        """What the broker is told, nothing left to its defaults that a guarantee rests on."""
        return {
            # Never compacted: the key is the tenant, and compaction would keep one event of each.
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_days * _DAY_MS),
            "retention.bytes": "-1",
            # Generations of remembered ids turn by the log's own time, never a producer's.
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(self.max_message_bytes),
            # A leader that lacks acknowledged records would cut the log's tail away unseen.
            "unclean.leader.election.enable": "false",
        }


EVENTS: Final = "usage.events"
ACCEPTED: Final = "usage.accepted"
REVIEW: Final = "usage.review"
DEAD_LETTER: Final = "usage.dead-letter"
ADMIT_LOG: Final = "usage.admit-log"

_MIB: Final = 1 << 20
TOPICS: Final = (
    Topic(EVENTS, 90, _MIB, "outbox rows as Debezium delivers them; the source of everything"),
    Topic(ACCEPTED, 90, 2 * _MIB, "accepted events with their window, for analysts"),
    Topic(REVIEW, 90, 2 * _MIB, "events that a person decides on"),
    Topic(DEAD_LETTER, 90, 2 * _MIB, "records that cannot be used, and requests given up"),
    Topic(ADMIT_LOG, 30, 8 * _MIB, "one packed record a chunk: rebuilds a partition's state"),
)
"""In the order of the journey."""

PACKED_BYTES_MAX: Final = 4 * _MIB
"""Half of what the packed log's topic takes, so that a packed record always fits."""


@dataclass(frozen=True, slots=True)
class TopicFinding:
    """One difference between the table and the broker; `fix` is what to do about it."""

    topic: str
    rule: str
    fix: str
    fatal: bool


def apply(
    bootstrap: str,
    *,
    partitions: int = 12,
    replication: int = 1,
    security: Mapping[str, str] | None = None,
) -> list[str]:
    """Creates what is missing and sets what differs; never changes a partition count.

    Returns the lines of what was done, empty when nothing was. Blocks up to 15 s a call.

    Raises:
        TopicsError: a topic exists with another partition count, or the broker does not answer.
    """
    admin = admin_client(bootstrap, security)
    existing = _partition_counts(admin)
    _refuse_other_counts(existing, partitions)
    done = []
    missing = [topic for topic in TOPICS if topic.name not in existing]
    futures = (
        admin.create_topics(
            [
                NewTopic(t.name, partitions, replication, config=_durable(t, replication))
                for t in missing
            ]
        )
        if missing
        else {}
    )
    for name, future in futures.items():
        answer_of(future, f"create topic {name}")
        done.append(f"created {name} with {partitions} partitions")
    for topic in TOPICS:
        if topic.name not in existing:
            continue
        wanted = _durable(topic, replication)
        if changed := _differing(admin, topic.name, wanted):
            # Incremental, so that what an operator set besides stays as it is.
            resource = ConfigResource(
                ResourceType.TOPIC,
                topic.name,
                incremental_configs=[
                    ConfigEntry(key, wanted[key], incremental_operation=AlterConfigOpType.SET)
                    for key in sorted(changed)
                ],
            )
            altering = admin.incremental_alter_configs([resource])
            answer_of(altering[resource], f"configure topic {topic.name}")
            done.append(f"set {', '.join(sorted(changed))} of {topic.name}")
    return done


def id_of(bootstrap: str, name: str, security: Mapping[str, str] | None = None) -> str:
    """The id that the broker gave this life of a topic. Blocks up to 15 s.

    Raises:
        TopicsError: there is none of that name, or the broker does not answer.
    """
    admin = admin_client(bootstrap, security)
    asked = admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_S)
    return str(answer_of(asked[name], f"describe topic {name}").topic_id)


def counts(bootstrap: str, security: Mapping[str, str] | None = None) -> dict[str, int]:
    """How many partitions each topic has; those that are not there are left out.

    Blocks up to 15 s.

    Raises:
        TopicsError: the broker does not answer.
    """
    existing = _partition_counts(admin_client(bootstrap, security))
    return {topic.name: existing[topic.name] for topic in TOPICS if topic.name in existing}


def lifetimes(bootstrap: str, security: Mapping[str, str] | None = None) -> dict[str, int | None]:
    """By topic, after how many milliseconds at most a record is gone; None: it never is.

    A record goes with its whole segment, which others may still be written to for `segment.ms`.
    Topics that are not there are left out. Blocks up to 15 s a call.

    Raises:
        TopicsError: the broker does not answer.
    """
    admin = admin_client(bootstrap, security)
    existing = _partition_counts(admin)
    found: dict[str, int | None] = {}
    for topic in TOPICS:
        if topic.name not in existing:
            continue
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        entries = answer_of(admin.describe_configs([resource])[resource], f"describe {topic.name}")
        kept_ms, segment_ms = (
            int(entries[key].value or -1) for key in ("retention.ms", "segment.ms")
        )
        bounded = kept_ms >= 0 and segment_ms >= 0 and entries["cleanup.policy"].value == "delete"
        found[topic.name] = kept_ms + segment_ms + _SWEEP_MS if bounded else None
    return found


def check(
    bootstrap: str,
    *,
    partitions: int = 12,
    replication: int = 1,
    security: Mapping[str, str] | None = None,
) -> list[TopicFinding]:
    """Compares the broker with the table; empty when all is as it must be."""
    admin = admin_client(bootstrap, security)
    existing = _partition_counts(admin)
    findings = []
    for topic in TOPICS:
        count = existing.get(topic.name)
        if count is None:
            findings.append(
                TopicFinding(topic.name, "does not exist", "tailrace topics apply", fatal=True)
            )
            continue
        if count != partitions:
            rule = f"has {count} partitions, this installation was set up with {partitions}"
            findings.append(TopicFinding(topic.name, rule, _COUNT_FIX, fatal=True))
        for key, (found, wanted) in _differing(
            admin, topic.name, _durable(topic, replication)
        ).items():
            findings.append(
                TopicFinding(
                    topic.name,
                    f"{key} is {found}, must be {wanted}",
                    "tailrace topics apply",
                    fatal=key == "cleanup.policy",
                )
            )
    return findings


def admin_client(bootstrap: str, security: Mapping[str, str] | None) -> AdminClient:
    """Whoever asks the brokers and changes topics."""
    # Its own log goes to stderr past everything of ours; what matters of it comes as an exception.
    return AdminClient({"log_level": 2, **(security or {}), "bootstrap.servers": bootstrap})


def broker_config(bootstrap: str, *, security: Mapping[str, str] | None = None) -> dict[str, str]:
    """What one of the brokers was told; `security` as for `apply`. Blocks up to 15 s a call.

    Raises:
        TopicsError: no broker answers.
    """
    admin = admin_client(bootstrap, security)
    try:
        brokers = admin.list_topics(timeout=TIMEOUT_S).brokers
    except KafkaException as error:
        raise _silent(error) from error
    resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
    entries = answer_of(admin.describe_configs([resource])[resource], "describe the broker")
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


_COUNT_FIX: Final = (
    "set TAILRACE_PARTITIONS to the count that usage.events was created with or grown to; only "
    "`tailrace topics grow` makes it more, and makes known what was altered past it: ids are "
    "remembered per partition"
)


def _refuse_other_counts(existing: Mapping[str, int], partitions: int) -> None:
    wrong = [t.name for t in TOPICS if existing.get(t.name, partitions) != partitions]
    if wrong:
        counts = ", ".join(f"{name} has {existing[name]}" for name in wrong)
        message = f"partitions: {counts}, asked for {partitions}. {_COUNT_FIX}"
        raise TopicsError(message)


def _durable(topic: Topic, replication: int) -> dict[str, str]:
    return topic.config() | {"min.insync.replicas": str(max(1, replication - 1))}


def _partition_counts(admin: AdminClient) -> dict[str, int]:
    try:
        metadata = admin.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise _silent(error) from error
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _silent(error: KafkaException) -> TopicsError:
    why = error.args[0].str() if error.args else str(error)
    message = f"kafka_bootstrap: the broker does not answer within {TIMEOUT_S:.0f} s ({why})"
    return TopicsError(message)


def _differing(
    admin: AdminClient, name: str, wanted: Mapping[str, str]
) -> dict[str, tuple[str | None, str]]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = answer_of(admin.describe_configs([resource])[resource], f"describe topic {name}")
    found = {key: entry.value for key, entry in entries.items()}
    return {k: (found.get(k), v) for k, v in wanted.items() if found.get(k) != v}


def answer_of(future: Future[_T], what: str) -> _T:
    """The broker's answer to what it was asked. Blocks up to 15 s.

    Raises:
        TopicsError: it refused, or did not answer.
    """
    try:
        return future.result(timeout=TIMEOUT_S)
    except KafkaException as error:
        message = f"could not {what}: {error}"
        raise TopicsError(message) from error
    except TimeoutError as error:
        message = f"could not {what}: the broker did not answer within {TIMEOUT_S:.0f} s"
        raise TopicsError(message) from error
