from pathlib import Path
from typing import Any

import pytest

from streams.engine import kafka_config
from streams.engine.errors import SettingsRefused
from streams.engine.settings import EngineSettings


def settings(**changes: Any) -> EngineSettings:
    values: dict[str, Any] = {
        "bootstrap": "127.0.0.1:9092",
        "group": "admit",
        "client_id": "worker-1",
        "topic": "usage.events",
        "packed_topic": "usage.admit-log",
        "partitions": 12,
        "data_dir": Path("data"),
        "horizon_ms": 7 * 86_400_000,
        "reach_back_ms": 8 * 86_400_000,
    }
    return EngineSettings(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"partitions": 0}, "partitions: above 0"),
        ({"group_protocol": "raft"}, "group_protocol: classic or consumer"),
        ({"group_protocol": "consumer", "instance_id": "w1"}, "instance_id: not together"),
        ({"reach_back_ms": 1}, "reach_back_ms: at least horizon_ms"),
        ({"max_poll_interval_ms": 60_000}, "settle_deadline_s: below max_poll_interval_ms"),
        ({"delivery_timeout_ms": 60_000}, "delivery_timeout_ms: below settle_deadline_s"),
        ({"heartbeat_interval_ms": 5_000}, "heartbeat_interval_ms: at most a third"),
    ],
)
def test_contradictions_are_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsRefused, match=says):
        settings(**changes)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SettingsRefused) as refused:
        settings(partitions=0, group_protocol="raft", reach_back_ms=1)
    assert str(refused.value).count(";") == 2


def test_a_dynamic_member_is_the_default_and_a_static_one_a_choice() -> None:
    assert "group.instance.id" not in kafka_config.group_consumer_config(settings())
    config = kafka_config.group_consumer_config(settings(instance_id="w1"))
    assert config["group.instance.id"] == "w1"


def test_the_new_protocol_gets_none_of_the_options_it_refuses() -> None:
    config = kafka_config.group_consumer_config(settings(group_protocol="consumer"))
    refused = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    assert refused.isdisjoint(config)
    assert config["group.protocol"] == "consumer"


@pytest.mark.parametrize(
    "config",
    [kafka_config.group_consumer_config(settings()), kafka_config.reader_config(settings())],
)
def test_no_client_commits_or_chooses_positions_by_itself(config: kafka_config.Config) -> None:
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "error"
