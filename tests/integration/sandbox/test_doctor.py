"""`tailrace doctor` on the whole stack: all is well when it is fresh, and faults are mended."""

import shlex
from collections.abc import Iterator

import pytest
import requests
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from streams import topics
from tests.integration.cli.conftest import Cli
from tests.support.stack import NativeStack, open_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
CONNECTOR = "outbox-sandbox"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeStack]:
    with open_stack(tmp_path_factory.mktemp("doctor") / "box", {}, workers=1) as opened:
        assert isinstance(opened, NativeStack)
        yield opened


@pytest.fixture
def cli(stack: NativeStack) -> Cli:
    return Cli(stack.directory)


def state(cli: Cli, check: str) -> tuple[str, str]:
    (found,) = cli.json("doctor", "doctor", check)["checks"]
    return found["state"], found["said"]


def mended(cli: Cli, check: str, said: str) -> None:
    """The check names what was planted; the command it prints, typed, ends it."""
    (found,) = cli.json("doctor", "doctor", check)["checks"]
    assert found["state"] == "trouble"
    assert any(said in trouble["what"] for trouble in found["troubles"]), found
    for paste in {trouble["fix"]["paste"] for trouble in found["troubles"]}:
        words = shlex.split(paste)
        assert words[0] == "tailrace"
        done = cli(*words[1:])
        assert done.code == 0, done.err
    until(f"{check} is well again", lambda: state(cli, check)[0] == "ok", 60)


def test_nothing_is_wrong_with_a_fresh_sandbox(cli: Cli) -> None:
    shown = cli("doctor")
    assert shown.code == 0, shown.out
    assert shown.out.splitlines()[-1].endswith(" ok · 0 in trouble · 0 not made")
    document = cli.json("doctor", "doctor")
    assert document["ok"]
    assert len(document["checks"]) >= 45


@pytest.mark.parametrize(
    ("check", "topic", "setting", "value"),
    [
        ("topic-retention", topics.ACCEPTED, "retention.ms", "86400000"),
        ("topic-compaction", topics.EVENTS, "cleanup.policy", "compact,delete"),
        ("topic-settings", topics.ADMIT_LOG, "max.message.bytes", "1048576"),
    ],
)
def test_a_topic_that_was_changed_is_named_and_set_right(
    check: str, topic: str, setting: str, value: str, stack: NativeStack, cli: Cli
) -> None:
    assert cli.json("topics_check", "topics", "check")["findings"] == []
    admin = AdminClient({"bootstrap.servers": stack.facts["kafka_bootstrap"]})
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    until(f"{topic} is changed", lambda: state(cli, check)[0] == "trouble", 30)
    mended(cli, check, f"{topic}: {setting} is {value}, must be ")
    assert cli.json("topics_apply", "topics", "apply")["done"] == []


def test_a_topic_that_is_gone_is_named_and_made_again(stack: NativeStack, cli: Cli) -> None:
    admin = AdminClient({"bootstrap.servers": stack.facts["kafka_bootstrap"]})
    admin.delete_topics([topics.REVIEW])[topics.REVIEW].result(30)
    until("the topic is gone", lambda: state(cli, "topics")[0] == "trouble", 30)
    mended(cli, "topics", f"{topics.REVIEW}: does not exist")


def test_a_partition_count_that_is_not_the_topics_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_PARTITIONS", "6")
    (found,) = cli.json("doctor", "doctor", "topic-partitions")["checks"]
    assert "has 12 partitions, this installation was set up with 6" in found["said"]
    paste = found["troubles"][0]["fix"]["paste"].partition("  # ")[0]
    variable, _, value = paste.partition("=")
    monkeypatch.setenv(variable, value)
    assert state(cli, "topic-partitions")[0] == "ok"


def test_a_connector_that_was_changed_past_us_or_stopped_is_named_and_set_right(
    stack: NativeStack, cli: Cli
) -> None:
    url = f"{stack.facts['connect_url']}/connectors/{CONNECTOR}"
    config = requests.get(f"{url}/config", timeout=30).json()
    changed = {**config, "max.batch.size": "1024"}
    assert requests.put(f"{url}/config", json=changed, timeout=30).ok
    until("it is changed", lambda: state(cli, "connector-drift")[0] == "trouble", 30)
    mended(cli, "connector-drift", "~ max.batch.size = 1024 -> ")
    assert requests.put(f"{url}/stop", timeout=30).ok
    until("it is stopped", lambda: state(cli, "connector-running")[0] == "trouble", 30)
    mended(cli, "connector-running", "connector STOPPED")
    until("the slot is read again", lambda: state(cli, "slot-reader")[0] == "ok", 60)


def test_a_broker_that_is_away_is_named_and_so_is_what_cannot_be_looked_at(
    stack: NativeStack, cli: Cli
) -> None:
    stack.stop("kafka")
    try:
        shown = cli("doctor", "broker", "topics", "ledger")
        assert shown.code == 69
        assert "TROUBLE   broker" in shown.out
        assert "not made  topics" in shown.out
        assert "ok        ledger" in shown.out
        assert "fix (shell): tailrace sandbox status" in shown.out
    finally:
        stack.start("kafka")
    until("the broker answers", lambda: cli("doctor", "broker", "topics").code == 0, 60)
