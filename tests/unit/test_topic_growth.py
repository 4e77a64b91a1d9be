"""Topics that grow: which are, in which order, and where each old partition ended."""

from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams import topic_growth, topics
from streams.topics import EVENTS, TOPICS, TopicsError
from tests.unit.fake_broker import Broker

NAMES: Final = [topic.name for topic in TOPICS]
SERVER: Final = "broker:9092"
MINUTE_MS: Final = 60_000


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Topics of four partitions; the second has no record."""
    fake = Broker(dict.fromkeys(NAMES, 4))
    fake.records = {0: [1_000, 2_000, 3_000], 2: [2_500], 3: [1_500] * 7}
    monkeypatch.setattr(topics, "AdminClient", lambda _config: fake)
    return fake


def test_all_topics_grow_the_events_topic_last(broker: Broker) -> None:
    done = topic_growth.grow(SERVER, 8)
    assert [line.split()[0] for line in done] == [*NAMES[:0:-1], EVENTS]
    assert done[-1] == f"{EVENTS} from 4 to 8 partitions"
    assert broker.partitions == dict.fromkeys(NAMES, 8)
    assert topic_growth.grow(SERVER, 8) == [], "a second time does nothing"


def test_a_growth_that_was_cut_short_goes_on(broker: Broker) -> None:
    broker.partitions |= {topics.ADMIT_LOG: 8, topics.REVIEW: 8}
    assert len(topic_growth.grow(SERVER, 8)) == 3
    assert broker.partitions == dict.fromkeys(NAMES, 8)


def test_partitions_are_not_taken_away(broker: Broker) -> None:
    broker.partitions[topics.REVIEW] = 12
    with pytest.raises(TopicsError, match=r"usage\.review has 12, asked for 8: none can be taken"):
        topic_growth.grow(SERVER, 8)
    assert broker.partitions[EVENTS] == 4, "nothing was done"


def test_a_topic_that_is_not_there_is_named(broker: Broker) -> None:
    del broker.partitions[topics.REVIEW]
    for question in (topic_growth.counts, lambda server: topic_growth.grow(server, 8)):
        with pytest.raises(
            TopicsError, match=r"usage\.review: not there\. `tailrace topics apply`"
        ):
            question(SERVER)


def test_a_refusal_of_the_broker_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_growth, "counts", lambda *_: dict.fromkeys(NAMES, 4))
    broker.fault = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(
        TopicsError, match=r"could not grow topic usage\.admit-log: .*AUTHORIZATION"
    ):
        topic_growth.grow(SERVER, 8)


def test_while_new_partitions_are_empty_the_old_ones_end_where_they_end(broker: Broker) -> None:
    topic_growth.grow(SERVER, 8)
    assert topic_growth.boundaries(SERVER, 4, 8) == [3, 0, 1, 7]


def test_a_growth_of_before_is_dated_by_the_first_record_that_came_of_it(broker: Broker) -> None:
    """And by some minutes more, for each broker has a clock of its own."""
    topic_growth.grow(SERVER, 8)
    grown_ms = 10_000
    broker.records |= {5: [grown_ms + 400], 6: [grown_ms, grown_ms + 9 * MINUTE_MS]}
    for partition in (0, 1):
        broker.records.setdefault(partition, []).extend(
            grown_ms + minute * MINUTE_MS for minute in range(10)
        )
    assert topic_growth.boundaries(SERVER, 4, 8) == [3 + 5, 5, 1, 7]


def test_what_retention_took_of_the_new_partitions_only_makes_a_boundary_higher(
    broker: Broker,
) -> None:
    topic_growth.grow(SERVER, 8)
    broker.records[0] += [minute * MINUTE_MS for minute in range(1, 40)]
    broker.records[4] = [MINUTE_MS, 21 * MINUTE_MS]
    low = topic_growth.boundaries(SERVER, 4, 8)
    broker.expired[4] = 1
    high = topic_growth.boundaries(SERVER, 4, 8)
    assert (low[0], high[0]) == (3 + 5, 3 + 25)
    broker.expired[4] = 2
    assert topic_growth.boundaries(SERVER, 4, 8)[0] == 3 + 39, "nothing is left: all that is there"


def test_a_new_partition_needs_a_moment_for_its_leader(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_growth, "_PAUSE_S", 0)
    passing = (
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._NOENT, KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE,
    )  # fmt: skip
    broker.faults = [KafkaError(code) for code in passing]
    topic_growth.grow(SERVER, 8)
    assert topic_growth.boundaries(SERVER, 4, 8) == [3, 0, 1, 7]
    monkeypatch.setattr(topic_growth, "PATIENCE_S", -1)
    broker.faults = [KafkaError(KafkaError._NOENT)]
    with pytest.raises(TopicsError, match=r"could not read offsets of usage\.events"):
        topic_growth.boundaries(SERVER, 4, 8)


def test_whoever_may_not_read_offsets_is_told_so_at_once(broker: Broker) -> None:
    refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    broker.faults = [refusal]
    with pytest.raises(TopicsError, match="AUTHORIZATION"):
        topic_growth.boundaries(SERVER, 4, 8)
    assert broker.faults == []
