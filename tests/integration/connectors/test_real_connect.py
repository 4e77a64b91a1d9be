"""Capture on a real stack: PostgreSQL, Debezium in Kafka Connect, Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from psycopg import Connection

from connectors import repair
from connectors.apply import Health, Outcome, Patience, apply, heal, protect, start
from connectors.errors import CaptureUnsafeError
from connectors.guard_findings import Severity, Start
from connectors.repair import RepairOrder, RepairTools
from tests.integration.connectors.outbox import record_in
from tests.integration.connectors.real import Source, header, source_on, value_of
from tests.support.live import LiveStack, live_stack
from tests.support.waiting import until
from tests.unit.connectors.test_source_registry import Remembered

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

AN_HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    with live_stack(tmp_path_factory.mktemp("capture") / "stack") as running:
        yield running


@pytest.fixture
def source(stack: LiveStack) -> Iterator[Source]:
    with source_on(stack) as made:
        yield made


def repaired(source: Source, *, even_if_healthy: bool = False) -> int:
    store = Remembered()
    store.add(source.capture.identity)
    now_us = source.outbox.execute(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    )
    order = RepairOrder(int(now_us) - AN_HOUR_US, "a drill", even_if_healthy=even_if_healthy)
    return repair.run(source.capture, order, RepairTools(store, source.outbox.connect)).rows


def test_a_committed_row_arrives_as_it_was_written_and_a_rolled_back_one_does_not(
    source: Source,
) -> None:
    apply(source.capture)
    start(source.capture, Start.FIRST)
    with source.outbox.connect() as writer:
        writer.execute("BEGIN")
        never = record_in(writer, "rolled back")
        writer.execute("ROLLBACK")
    ids = source.outbox.record("a", "b")
    source.arrived.await_ids(ids)
    assert never not in source.arrived.ids()
    record = next(r for r in source.arrived.records if header(r, "id") == ids[0])
    value = value_of(record)
    assert record.key() == b"acme"
    assert value["event_id"] == ids[0]
    assert value["quantity"] == "3"
    assert [pair[0] for pair in record.headers() or []] == [
        "id",
        "event_type",
        "schema_version",
        "received_at",
        "traceparent",
    ]
    assert header(record, "event_type") == "usage.recorded"
    assert header(record, "schema_version") == "1"
    assert header(record, "received_at") == value["received_at"]


def test_applying_twice_writes_once_and_connect_finds_nothing_wrong(source: Source) -> None:
    assert apply(source.capture).outcome is Outcome.CREATED
    assert apply(source.capture).outcome is Outcome.UNCHANGED
    assert source.capture.client.validate(source.capture.name, source.capture.config).problems == ()


def test_the_guard_raises_no_false_alarm_under_load_and_around_restarts(source: Source) -> None:
    source.first_start()
    ids: list[str] = []
    ended = threading.Event()

    def write() -> None:
        n = 0
        while not ended.is_set():
            n += 1
            ids.extend(source.outbox.record(*(f"load {n} {m}" for m in range(1 + n % 20))))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            for _ in range(20):
                refused = [f for f in protect(source.capture) if f.severity is Severity.REFUSE]
                assert refused == []
            source.stop()
            start(source.capture)
    finally:
        ended.set()
        writer.join()
    source.arrived.await_ids(ids)


def test_a_transaction_open_across_a_graceful_stop_arrives_whole(source: Source) -> None:
    # Older versions store the position of the other commit and then skip the open one's rows.
    source.first_start()
    with source.outbox.connect() as long_open:
        long_open.execute("BEGIN")
        ids = [record_in(long_open, f"before {n}") for n in range(5)]
        ids += source.outbox.record("in between")
        source.arrived.await_ids(ids[-1:])
        _wait_until_stored(source)
        ids += [record_in(long_open, f"after {n}") for n in range(5)]
        source.stop()
        long_open.execute("COMMIT")
    start(source.capture)
    source.arrived.await_ids(ids)


def test_what_was_stopped_goes_on_where_it_stopped_and_knows_of_new_partitions(
    source: Source,
) -> None:
    source.first_start()
    source.stop()
    ids = source.outbox.record(*(f"while stopped {n}" for n in range(20)))
    source.grow(24)
    assert source.outbox.execute("SELECT action FROM metering.grow_partitions(24)") == "grown"
    assert apply(source.capture).outcome is Outcome.UNCHANGED
    assert start(source.capture).all_running
    with source.outbox.connect() as ops:
        sent = ops.execute("SELECT event_id::text FROM metering.emit_canaries()").fetchall()
    canaries = [event_id for (event_id,) in sent]
    source.arrived.await_ids([*ids, *canaries])
    assert {source.arrived.ids()[event_id] for event_id in (*ids, *canaries)} == {1}
    came = [r for r in source.arrived.records if header(r, "event_type") == "metering.canary"]
    assert sorted(r.partition() or 0 for r in came) == list(range(24))
    assert [value_of(r)["partition"] for r in came] == [r.partition() for r in came]


def test_a_slot_advanced_past_rows_is_refused_and_the_repair_delivers_them(
    source: Source,
) -> None:
    source.first_start()
    source.stop()
    ids = source.outbox.record(*(f"gap {n}" for n in range(10)))
    source.outbox.advance()
    with pytest.raises(CaptureUnsafeError, match="slot-ahead"):
        start(source.capture)
    assert source.capture.client.status(source.capture.name).state == "STOPPED"
    assert repaired(source) == 11
    source.arrived.await_ids(ids)
    source.await_position()
    assert [f for f in protect(source.capture) if f.severity is Severity.REFUSE] == []


def test_a_slot_dropped_and_made_anew_is_refused_and_the_repair_delivers_its_rows(
    source: Source,
) -> None:
    source.first_start()
    source.stop()
    ids = source.outbox.record(*(f"gap {n}" for n in range(10)))
    source.outbox.drop_slot()
    source.outbox.create_slot()
    with pytest.raises(CaptureUnsafeError, match="slot-ahead"):
        start(source.capture)
    repaired(source)
    source.arrived.await_ids(ids)


def test_a_lost_position_is_refused_though_the_slot_is_whole(source: Source) -> None:
    source.first_start()
    source.stop()
    source.capture.client.delete_offsets(source.capture.name)
    ids = source.outbox.record("unsent")
    with pytest.raises(CaptureUnsafeError, match="position-missing"):
        start(source.capture)
    repaired(source)
    source.arrived.await_ids(ids)


def test_a_renamed_column_stops_the_connector_instead_of_dropping_the_row(source: Source) -> None:
    source.first_start()
    with source.outbox.connect() as owner:
        _insert_under_another_name(owner)
    client, name = source.capture.client, source.capture.name
    status = client.await_state(name, lambda s: s.failed, what="failed", within_s=90)
    healed = heal(source.capture, Patience(attempts_max=1))
    # A restart would meet the same row: the guard names the repair instead.
    assert healed.health is Health.REFUSED
    assert "event_type" in status.traces
    assert "renamed" not in {(r.key() or b"").decode() for r in source.arrived.records}


def test_while_nobody_can_log_in_connect_says_running_and_the_guard_sees_the_idle_slot(
    source: Source,
) -> None:
    source.first_start()
    source.stop()
    database = source.outbox.database
    source.outbox.execute(f"ALTER DATABASE {database} CONNECTION LIMIT 0")
    source.capture.client.resume(source.capture.name)
    client, name = source.capture.client, source.capture.name
    client.await_state(name, lambda s: s.all_running, what="running", within_s=60)
    assert [finding.rule for finding in protect(source.capture)] == ["slot-idle"]
    source.outbox.execute(f"ALTER DATABASE {database} CONNECTION LIMIT -1")
    source.arrived.await_ids(source.outbox.record("after"))


def test_rows_from_a_time_without_the_publication_need_the_repair(source: Source) -> None:
    source.first_start()
    publication = source.outbox.publication
    source.stop()
    source.outbox.execute(f"ALTER PUBLICATION {publication} RENAME TO elsewhere")
    ids = source.outbox.record("while it is away")
    with pytest.raises(CaptureUnsafeError, match="publication-missing"):
        start(source.capture)
    source.outbox.execute(f"ALTER PUBLICATION elsewhere RENAME TO {publication}")
    # The guard sees nothing any more, yet this slot would stand before those rows for ever.
    assert repaired(source, even_if_healthy=True) == 2
    source.arrived.await_ids(ids)


def _wait_until_stored(source: Source) -> None:
    """Wait until Connect has stored what has arrived, and told the slot."""

    def stored() -> bool:
        observed = source.capture.observe()
        offsets = observed.offsets
        offset = offsets.of(source.capture.config["topic.prefix"]) if offsets else None
        slot = observed.slot
        return (
            offset is not None
            and slot is not None
            and slot.confirmed_lsn is not None
            and offset.safe_lsn is not None
            and slot.confirmed_lsn >= offset.safe_lsn
        )

    until("the position to be stored", stored, 60)


def _insert_under_another_name(owner: Connection[tuple[object, ...]]) -> None:
    owner.execute("ALTER TABLE metering.usage_outbox RENAME COLUMN event_type TO kind")
    owner.execute(
        "INSERT INTO metering.usage_outbox "
        "(emitted_at, event_id, kafka_key, kind, schema_version, received_at, payload) "
        "VALUES (clock_timestamp(), gen_random_uuid(), 'renamed', 'usage.recorded', 1, "
        "clock_timestamp(), '{}')"
    )
