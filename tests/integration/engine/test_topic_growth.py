"""Topics grow on a real broker, which needs a moment for it and dates records itself."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from streams import topic_growth, topics
from streams.cli.growth_steps import written_step
from streams.core.growth import grown_log_id
from streams.core.identity import log_uuid, topic_id_of
from streams.engine.log import LogId
from streams.engine.packed import encode, pack
from streams.engine.settlement import Settlement
from streams.settings import load
from streams.topics import EVENTS, TOPICS
from tests.support.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def three(kafka_bootstrap: str) -> Iterator[str]:
    """Our topics, of three partitions each."""
    topics.apply(kafka_bootstrap, partitions=3)
    yield kafka_bootstrap
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    for future in admin.delete_topics([topic.name for topic in TOPICS]).values():
        future.result(20)
    until("they are gone", lambda: EVENTS not in admin.list_topics(timeout=20).topics)


def produce(bootstrap: str, partition: int, records: int = 1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(records):
        producer.produce(EVENTS, b"{}", b"acme", partition)
    assert producer.flush(20) == 0


def test_topics_grow_and_each_old_partition_says_where_it_ended(three: str) -> None:
    for partition in (0, 2):
        produce(three, partition, partition + 1)
    assert len(topic_growth.grow(three, 6)) == len(TOPICS)
    # At once: nobody waits for the new partitions before their ends are read.
    assert topic_growth.boundaries(three, 3, 6) == [1, 0, 3]
    assert set(topic_growth.counts(three).values()) == {6}
    assert topics.check(three, partitions=6) == []
    assert topic_growth.grow(three, 6) == []


def test_a_growth_of_some_time_ago_is_dated_by_the_first_records_that_came_of_it(
    three: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_growth, "SKEW_MS", 100)
    for partition in (0, 1):
        produce(three, partition)
    topic_growth.grow(three, 6)
    produce(three, 0)
    produce(three, 4)
    time.sleep(0.3)
    produce(three, 4)
    produce(three, 0, 2)
    assert topic_growth.boundaries(three, 3, 6) == [2, 1, 0]
    monkeypatch.setattr(topic_growth, "SKEW_MS", 60_000)
    assert topic_growth.boundaries(three, 3, 6) == [4, 1, 0], "too high is no harm"


def test_what_workers_wrote_of_new_partitions_says_how_their_topic_grew(three: str) -> None:
    settings = load({"TAILRACE_KAFKA_BOOTSTRAP": three}, required=("kafka_bootstrap",))
    root = log_uuid(topics.id_of(three, EVENTS))
    topic_growth.grow(three, 12)
    assert written_step(settings, root, 3, 12) is None, "nobody wrote anything"
    write_packed(three, 7, grown_log_id(root, 6, 12))
    assert written_step(settings, root, 3, 12) == 6
    assert written_step(settings, root, 6, 12) == 12
    write_packed(three, 9, root)
    assert written_step(settings, root, 3, 12) == 6, "another log says nothing of it"


def write_packed(bootstrap: str, partition: int, log_id: str) -> None:
    log = LogId(EVENTS, topic_id_of(log_id), partition)
    settled = Settlement(
        first=0, last=0, anchor=bytes(16), catalogue_hash=b"", timestamp_ms_max=1,
        received_max_us=-1, seen=[], pinned=[], levels=[], unsent=[],
    )  # fmt: skip
    record = pack(log, settled, timestamp_ms_max=1, floor_us=-1, confirmed=-1)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topics.ADMIT_LOG, encode(record), None, partition)
    assert producer.flush(20) == 0
