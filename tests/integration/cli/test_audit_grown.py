"""A topic that grew, as commands see it: what nobody watches is not called in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.cli import audit_registry
from streams.cli.database import Connection, connected
from streams.cli.errors import ConfigurationError
from streams.cli.layouts import layouts_of
from streams.core.growth import grown_log_id
from streams.core.identity import topic_id_of
from streams.engine.layout import Layout, ungrown
from tests.integration.cli.conftest import Ran, World, new_key
from tests.integration.cli.pipeline import LOG, PARTITIONS

pytestmark = pytest.mark.postgres
WANTED = 2 * PARTITIONS
TOPIC_ID = topic_id_of(LOG)
BOUNDS = [10 + number for number in range(PARTITIONS)]


def settled(world: World) -> None:
    """Something is counted, so the ledger follows the log and knows its count."""
    world.record_before("acme", new_key(), 7)
    assert world.cli("audit").last == "lost 0 · double 0"


def grown(world: World) -> str:
    """The ledger is told of the growth; the id of the log that came of it."""
    log_id = grown_log_id(LOG, PARTITIONS, WANTED)
    order = (LOG, log_id, PARTITIONS, WANTED, BOUNDS)
    with world.ledger.connect(world.ledger.login("ledger_finance")) as person:
        person.execute("SELECT ledger.grow_log_v1(%s, %s, %s, %s, %s, 'a test', NULL)", order)
    return log_id


# -- audit -----------------------------------------------------------------------------------------


def refused(world: World) -> Ran:
    settled(world)
    grown(world)
    world.pipeline.lose.add("swallowed")
    world.record_before("acme", "swallowed", 9)
    return world.cli("audit")


def test_nothing_is_judged_or_sealed_while_a_partition_is_sent_no_canary(world: World) -> None:
    audit = refused(world)
    assert audit.code == 78
    assert (
        f"sends canaries to {PARTITIONS} of the {WANTED} partitions of usage.events, so nothing "
        "can be judged"
    ) in audit.err
    assert f"`tailrace source grow --partitions {WANTED}`, then audit again" in audit.err
    assert "lost" not in audit.out
    assert world.value(world.ledger, "SELECT count(*) FROM ledger.sealed_minute") == 1


def test_a_rule_taken_out_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_registry, "_refuse_gaps", lambda *_: None)
    with pytest.raises(AssertionError):
        test_nothing_is_judged_or_sealed_while_a_partition_is_sent_no_canary(world)


def test_a_ledger_that_was_told_of_no_count_refuses_none(world: World) -> None:
    assert world.cli("audit").last == "lost 0 · double 0"


# -- layouts ---------------------------------------------------------------------------------------


@contextmanager
def reading(world: World) -> Iterator[Connection]:
    with connected(world.ledger.dsn(world.ledger.login("ledger_reader")), "the ledger") as opened:
        yield opened


def test_a_log_that_the_ledger_never_heard_of_never_grew(world: World) -> None:
    with reading(world) as ledger:
        assert layouts_of(ledger, TOPIC_ID, 3) == [ungrown(TOPIC_ID, 3, n) for n in range(3)]


def test_each_partition_has_the_layout_that_workers_go_by(world: World) -> None:
    settled(world)
    log_id = grown(world)
    with reading(world) as ledger:
        layouts = layouts_of(ledger, TOPIC_ID, WANTED)
    assert layouts[3] == Layout(
        TOPIC_ID, TOPIC_ID, WANTED, ((0, PARTITIONS), (BOUNDS[3], WANTED)), frozenset({3})
    )
    came = PARTITIONS + 3
    assert layouts[came] == Layout(
        TOPIC_ID, topic_id_of(log_id), WANTED, ((0, WANTED),), frozenset({3, came})
    )
    assert len(layouts) == WANTED


@pytest.mark.parametrize("count", [PARTITIONS, 2 * WANTED])
def test_another_count_than_the_ledger_knows_of_is_refused(world: World, count: int) -> None:
    settled(world)
    grown(world)
    with reading(world) as ledger, pytest.raises(ConfigurationError) as said:
        layouts_of(ledger, TOPIC_ID, count)
    assert str(said.value) == (f"usage.events has {count} partitions, the ledger knows of {WANTED}")
    assert said.value.fix == f"make it known: `tailrace topics grow --partitions {count}`"
