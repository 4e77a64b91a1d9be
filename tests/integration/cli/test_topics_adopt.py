"""An events topic that was made anew is followed once a person says so, and once only."""

import pytest

from streams import topics
from streams.core.identity import topic_id_of
from tests.integration.cli.conftest import World, new_key

pytestmark = pytest.mark.postgres
ANOTHER = "99999999-2222-3333-4444-555555555555"
LOGS = "SELECT count(*) FROM ledger.log"


def test_another_log_is_adopted_once_with_its_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_fact("kafka_bootstrap", "nobody:1")
    monkeypatch.setattr(topics, "counts", lambda *_: {topics.EVENTS: 12})
    monkeypatch.setattr(topics, "id_of", lambda *_: topic_id_of(ANOTHER))
    why = ("--reason", "the topic was deleted")
    nothing = world.cli("topics", "adopt", *why, "--yes")
    assert nothing.out.startswith("nothing to adopt: the ledger follows no log"), nothing
    world.record("acme", new_key())
    assert world.cli("audit").code == 0

    refused = world.cli("topics", "adopt", "--yes")
    assert refused.code == 2
    assert "--reason: say why" in refused.err
    asked = world.cli("topics", "adopt", *why)
    assert asked.code == 2
    assert f"plan: usage.events is {ANOTHER} from now on" in asked.err
    assert world.value(world.ledger, LOGS) == 1

    done = world.cli("topics", "adopt", *why, "--yes")
    assert (done.code, done.out) == (0, f"adopted: usage.events {ANOTHER}\n")
    assert "`tailrace connector repair --even-if-healthy`" in done.err
    again = world.cli("topics", "adopt", *why, "--yes")
    assert again.out.startswith(f"nothing to adopt: usage.events {ANOTHER} is followed since")
    assert again.out.rstrip().endswith("the topic was deleted")
    assert world.value(world.ledger, LOGS) == 2
    assert world.cli.json("status", "status")["positions"] == [], "nothing of the new log yet"
