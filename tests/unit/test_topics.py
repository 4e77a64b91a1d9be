"""The topics' table against a broker: what is created, set, refused and found."""

from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams import topics
from streams.topics import TOPICS, TopicFinding, TopicsError
from tests.unit.fake_broker import Broker, answered

NAMES: Final = [topic.name for topic in TOPICS]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    fake = Broker()
    monkeypatch.setattr(topics, "AdminClient", lambda _config: fake)
    return fake


def apply(**options: int) -> list[str]:
    counts: Any = {"partitions": 12, "replication": 3} | options
    return topics.apply("broker:9092", **counts)


def check(**options: int) -> list[TopicFinding]:
    counts: Any = {"partitions": 12, "replication": 3} | options
    return topics.check("broker:9092", **counts)


def test_an_empty_broker_gets_all_of_them(broker: Broker) -> None:
    assert apply() == [f"created {name} with 12 partitions" for name in NAMES]
    assert broker.partitions == dict.fromkeys(NAMES, 12)
    assert set(broker.replication.values()) == {3}
    assert check() == []


def test_a_second_time_does_nothing(broker: Broker) -> None:
    apply()
    before = {name: dict(config) for name, config in broker.configs.items()}
    assert apply() == []
    assert broker.configs == before


@pytest.mark.parametrize(("replication", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (5, "4")])
def test_an_acknowledged_record_outlives_a_broker(
    broker: Broker, replication: int, in_sync: str
) -> None:
    apply(replication=replication)
    assert {c["min.insync.replicas"] for c in broker.configs.values()} == {in_sync}


@pytest.mark.parametrize("name", NAMES)
def test_what_guarantees_rest_on_is_told_to_the_broker(broker: Broker, name: str) -> None:
    apply()
    config = broker.configs[name]
    assert config["cleanup.policy"] == "delete"
    assert config["message.timestamp.type"] == "LogAppendTime"
    assert config["unclean.leader.election.enable"] == "false"
    assert config["retention.bytes"] == "-1"
    assert int(config["retention.ms"]) >= 30 * 24 * 3_600_000


def test_a_missing_topic_is_created_beside_the_others(broker: Broker) -> None:
    apply()
    del broker.partitions[topics.REVIEW]
    (finding,) = check()
    assert (finding.topic, finding.rule, finding.fatal) == (topics.REVIEW, "does not exist", True)
    assert finding.fix == "tailrace topics apply"
    assert apply() == [f"created {topics.REVIEW} with 12 partitions"]


def test_what_differs_is_set_and_what_an_operator_set_besides_stays(broker: Broker) -> None:
    apply()
    broker.configs[topics.EVENTS] |= {"cleanup.policy": "compact", "segment.bytes": "104857600"}
    del broker.configs[topics.EVENTS]["retention.ms"]
    assert apply() == [f"set cleanup.policy, retention.ms of {topics.EVENTS}"]
    assert broker.configs[topics.EVENTS]["segment.bytes"] == "104857600"
    assert check() == []


def test_compaction_is_fatal_retention_is_not(broker: Broker) -> None:
    apply()
    broker.configs[topics.EVENTS] |= {"cleanup.policy": "compact", "retention.ms": "1000"}
    findings = {finding.rule: finding.fatal for finding in check()}
    assert findings == {
        "cleanup.policy is compact, must be delete": True,
        "retention.ms is 1000, must be 7776000000": False,
    }


def test_the_counts_are_those_of_our_topics_that_are_there(broker: Broker) -> None:
    broker.partitions = {topics.EVENTS: 24, topics.REVIEW: 12, "of somebody else": 3}
    assert topics.counts("broker:9092") == {topics.EVENTS: 24, topics.REVIEW: 12}


def test_another_partition_count_is_refused_before_anything_is_done(broker: Broker) -> None:
    broker.partitions = {topics.EVENTS: 6}
    with pytest.raises(TopicsError, match=r"usage\.events has 6, asked for 12") as refused:
        apply()
    assert "TAILRACE_PARTITIONS" in str(refused.value)
    assert broker.partitions == {topics.EVENTS: 6}


def test_another_partition_count_is_found(broker: Broker) -> None:
    apply()
    broker.partitions[topics.ADMIT_LOG] = 24
    (finding,) = check()
    assert finding.fatal
    assert finding.rule == "has 24 partitions, this installation was set up with 12"
    assert "`tailrace topics grow`" in finding.fix


def test_other_peoples_topics_are_left_alone(broker: Broker) -> None:
    broker.partitions = {"orders": 3}
    broker.configs = {"orders": {"cleanup.policy": "compact"}}
    apply()
    assert broker.partitions["orders"] == 3
    assert broker.configs["orders"] == {"cleanup.policy": "compact"}


def test_a_broker_that_is_away_is_named(broker: Broker) -> None:
    broker.fault = KafkaException(KafkaError(KafkaError._TRANSPORT))
    for command in (apply, check):
        with pytest.raises(TopicsError, match="kafka_bootstrap: the broker does not answer"):
            command()


def test_a_broker_that_falls_silent_is_named(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.01)
    broker.silent = True
    with pytest.raises(TopicsError, match=r"could not create topic usage\.events: the broker did"):
        apply()


def test_a_refusal_of_the_broker_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR))
    monkeypatch.setattr(broker, "_answer", lambda _value=None: answered(refusal))
    with pytest.raises(TopicsError, match=r"could not create topic usage\.events: .*REPLICATION"):
        apply()


def test_a_packed_record_always_fits_its_topic() -> None:
    packed = next(topic for topic in TOPICS if topic.name == topics.ADMIT_LOG)
    assert packed.max_message_bytes >= 2 * topics.PACKED_BYTES_MAX
    source = next(topic for topic in TOPICS if topic.name == topics.EVENTS)
    for topic in TOPICS:
        if topic is not source:
            assert topic.max_message_bytes >= 2 * source.max_message_bytes


def test_the_sources_records_outlive_what_state_remembers() -> None:
    """A state that is lost with its packed log is judged again from the source."""
    source = next(topic for topic in TOPICS if topic.name == topics.EVENTS)
    assert source.retention_days * 24 >= 168 + 24


def test_a_record_is_gone_after_its_retention_and_the_life_of_its_segment(broker: Broker) -> None:
    apply()
    day_ms = 86_400_000
    for name in NAMES:
        broker.configs[name]["segment.ms"] = str(7 * day_ms)
    broker.configs["usage.events"]["retention.ms"] = str(day_ms)
    broker.configs["usage.review"]["retention.ms"] = "-1"
    broker.configs["usage.accepted"]["cleanup.policy"] = "compact"
    del broker.partitions["usage.dead-letter"]
    hour_ms = 3_600_000
    assert topics.lifetimes("broker:9092") == {
        "usage.events": 8 * day_ms + hour_ms,
        "usage.accepted": None,
        "usage.review": None,
        "usage.admit-log": 37 * day_ms + hour_ms,
    }
