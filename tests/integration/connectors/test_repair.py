"""The repair run: a real database with real slots, and a Connect the test plays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from connectors import repair
from connectors.apply import apply
from connectors.capture import Capture
from connectors.errors import RepairRefusedError
from connectors.repair import RepairOrder, RepairTools, repair_from_us
from connectors.source_registry import SourceIdentity
from tests.integration.connectors.outbox import Outbox, record_in
from tests.support.waiting import until
from tests.unit.connectors.fake_connect import FakeConnect
from tests.unit.connectors.test_source_registry import Remembered

pytestmark = pytest.mark.postgres

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(capture: Capture) -> Remembered:
    made = Remembered()
    made.add(capture.identity)
    return made


@pytest.fixture
def tools(outbox: Outbox, store: Remembered) -> RepairTools:
    return RepairTools(store, outbox.connect)


@pytest.fixture
def order(outbox: Outbox) -> RepairOrder:
    """Everything from before the outbox was made."""
    now: datetime = outbox.execute("SELECT clock_timestamp()")
    an_hour_us = 3_600_000_000
    now_us = (now - EPOCH) // timedelta(microseconds=1)
    return RepairOrder(from_us=now_us - an_hour_us, reason="slot advanced by hand")


@pytest.fixture
def broken(capture: Capture, outbox: Outbox, fake: FakeConnect) -> Capture:
    """Rows 1 to 10 were recorded; the slot has passed them; Connect never saw them."""
    apply(capture)
    stored = {"partition": {"server": "src.shop"}, "offset": {"lsn_commit": outbox.confirmed()}}
    fake.offsets[capture.name] = [stored]
    outbox.record(*(f"k{n}" for n in range(10)))
    outbox.advance()
    return capture


def test_every_row_of_the_gap_is_in_the_new_slot(
    broken: Capture, outbox: Outbox, fake: FakeConnect, order: RepairOrder, tools: RepairTools
) -> None:
    assert outbox.waiting_in_slot() == 0
    receipt = repair.run(broken, order, tools)
    assert receipt.rows == 10
    assert receipt.status.all_running
    assert receipt.from_us == order.from_us < receipt.to_us
    assert fake.offsets[broken.name] == []
    outbox.await_in_slot(10)


def test_a_commit_that_arrives_after_the_deletion_is_deleted_too(
    broken: Capture, fake: FakeConnect, order: RepairOrder, tools: RepairTools
) -> None:
    fake.late_commits = 2
    assert repair.run(broken, order, tools).rows == 10
    assert fake.offsets[broken.name] == []


def test_a_position_that_will_not_go_stops_the_run_before_the_slot_is_touched(
    broken: Capture, outbox: Outbox, fake: FakeConnect, order: RepairOrder, tools: RepairTools
) -> None:
    fake.late_commits = 10_000
    confirmed = outbox.confirmed()
    with pytest.raises(RepairRefusedError, match="still holds a position"):
        repair.run(broken, order, tools)
    assert outbox.confirmed() == confirmed


def test_a_plan_changes_nothing_and_names_each_step(
    broken: Capture, outbox: Outbox, fake: FakeConnect, order: RepairOrder
) -> None:
    before, confirmed = list(fake.wrote()), outbox.confirmed()
    planned = repair.plan(broken, order)
    assert [finding.rule for finding in planned.findings] == ["slot-ahead"]
    assert [step.split()[0] for step in planned.steps] == [
        "stop",
        "delete",
        "drop",
        "create",
        "re-emit",
        "look",
        "start",
    ]
    assert fake.wrote() == before
    assert outbox.confirmed() == confirmed


def test_a_dropped_slot_is_made_anew(
    broken: Capture, outbox: Outbox, order: RepairOrder, tools: RepairTools
) -> None:
    outbox.drop_slot()
    assert "drop" not in [step.split()[0] for step in repair.plan(broken, order).steps]
    assert repair.run(broken, order, tools).rows == 10
    outbox.await_in_slot(10)


def test_a_run_that_broke_off_is_run_again_and_loses_nothing(
    broken: Capture, outbox: Outbox, fake: FakeConnect, order: RepairOrder, tools: RepairTools
) -> None:
    outbox.execute(
        "ALTER FUNCTION metering.reemit(timestamptz, timestamptz, text) RENAME TO reemit_away"
    )
    with pytest.raises(Exception, match="reemit"):
        repair.run(broken, order, tools)
    assert fake.states[broken.name] == "STOPPED"
    outbox.execute(
        "ALTER FUNCTION metering.reemit_away(timestamptz, timestamptz, text) RENAME TO reemit"
    )
    assert repair.run(broken, order, tools).rows == 10
    outbox.await_in_slot(10)


def test_a_new_cluster_or_timeline_is_taken_only_on_the_order_to_do_so(
    broken: Capture, order: RepairOrder, tools: RepairTools, store: Remembered
) -> None:
    here = broken.identity
    old = replace(here, timeline=here.timeline + 7)
    store.known = {"shop": old}
    moved = replace(broken, identity=old)
    with pytest.raises(RepairRefusedError, match="accept the identity"):
        repair.run(moved, order, tools)
    receipt = repair.run(moved, replace(order, accept_identity=True), tools)
    assert receipt.new_identity == here
    assert store.find("shop") == here


def test_a_registration_that_changed_meanwhile_stops_the_run(
    broken: Capture,
    fake: FakeConnect,
    order: RepairOrder,
    tools: RepairTools,
    store: Remembered,
) -> None:
    moved = replace(broken, identity=replace(broken.identity, timeline=9))
    store.known = {"shop": SourceIdentity("shop", "elsewhere", 3)}
    with pytest.raises(RepairRefusedError, match="changed meanwhile"):
        repair.run(moved, replace(order, accept_identity=True), tools)
    assert fake.states[broken.name] == "STOPPED"


def test_a_healthy_source_is_not_repaired_by_accident(
    capture: Capture,
    outbox: Outbox,
    fake: FakeConnect,
    order: RepairOrder,
    tools: RepairTools,
) -> None:
    apply(capture)
    stored = {"partition": {"server": "src.shop"}, "offset": {"lsn_commit": outbox.confirmed()}}
    fake.offsets[capture.name] = [stored]
    with pytest.raises(RepairRefusedError, match="nothing to repair"):
        repair.run(capture, order, tools)
    outbox.record("k1")
    receipt = repair.run(capture, replace(order, even_if_healthy=True), tools)
    assert receipt.rows == 1


def test_a_range_the_outbox_refuses_is_refused_with_its_own_words(
    broken: Capture, outbox: Outbox, fake: FakeConnect, order: RepairOrder, tools: RepairTools
) -> None:
    with pytest.raises(RepairRefusedError, match="from_received_at: must not be older than"):
        repair.run(broken, replace(order, from_us=0), tools)
    assert fake.states[broken.name] == "STOPPED"
    assert repair.run(broken, order, tools).rows == 10


def test_a_repair_needs_a_reason(broken: Capture, order: RepairOrder, tools: RepairTools) -> None:
    with pytest.raises(RepairRefusedError, match="reason: empty"):
        repair.run(broken, replace(order, reason=" "), tools)


def test_a_repair_of_a_connector_that_was_never_applied_is_refused(
    capture: Capture, order: RepairOrder, tools: RepairTools
) -> None:
    with pytest.raises(RepairRefusedError, match="apply its config first"):
        repair.run(capture, order, tools)


def test_a_worker_that_ignores_the_stop_is_named_as_the_obstacle(
    broken: Capture, fake: FakeConnect, order: RepairOrder, tools: RepairTools
) -> None:
    fake.states[broken.name] = "RUNNING"
    fake.ignores_stop = True
    with pytest.raises(RepairRefusedError, match="end that worker"):
        repair.run(broken, order, tools)


def test_a_reader_that_keeps_the_slot_is_named_by_its_process(
    broken: Capture, outbox: Outbox, order: RepairOrder, tools: RepairTools
) -> None:
    with outbox.reading(), pytest.raises(RepairRefusedError, match=r"read by process \d+"):
        repair.run(broken, order, tools)


def test_a_transaction_that_stays_open_is_named_and_the_run_can_be_repeated(
    broken: Capture,
    outbox: Outbox,
    order: RepairOrder,
    tools: RepairTools,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "SLOT_WITHIN_S", 1)
    with outbox.connect() as writer:
        writer.execute("BEGIN")
        record_in(writer, "k99")
        with pytest.raises(RepairRefusedError, match=r"open transactions \(process \d+ of"):
            repair.run(broken, order, tools)
        writer.execute("COMMIT")
    assert repair.run(broken, order, tools).rows == 11


def test_a_row_open_while_the_slot_is_made_is_not_lost(
    broken: Capture, outbox: Outbox, order: RepairOrder, tools: RepairTools
) -> None:
    # The slot waits for the writer; the row is committed before the re-emission looks.
    with outbox.connect() as writer:
        writer.execute("BEGIN")
        record_in(writer, "k99")
        result: list[int] = []
        runner = threading.Thread(
            target=lambda: result.append(repair.run(broken, order, tools).rows)
        )
        runner.start()
        until("the new slot waits for the writer", _waits(outbox))
        writer.execute("COMMIT")
        runner.join(30)
    assert result == [11]
    outbox.await_in_slot(11)


def _waits(outbox: Outbox) -> Callable[[], bool]:
    question = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND query LIKE '%%pg_create_logical_replication_slot%%' AND wait_event_type = 'Lock'"
    )
    return lambda: bool(outbox.execute(question))


def test_re_emission_begins_before_the_longest_transaction() -> None:
    assert repair_from_us(10_000_000, 4_000_000) == 6_000_000
