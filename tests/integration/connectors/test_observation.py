"""The guard's readings against a real server: each thing that can be broken is broken for real."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from connectors.capture import Capture
from connectors.errors import SourceUnavailableError
from connectors.guard_findings import Start, must_stop
from tests.integration.connectors.outbox import Outbox
from tests.unit.connectors.fake_connect import FakeConnect

pytestmark = pytest.mark.postgres


def refused(capture: Capture, start: Start = Start.GO_ON) -> list[str]:
    return [finding.rule for finding in must_stop(capture.look(start))]


def hold(fake: FakeConnect, capture: Capture, position: int, state: str = "STOPPED") -> None:
    """Connect holds this stored commit position."""
    fake.add(capture.name, capture.config, state)
    offset = {"lsn": position - 8, "lsn_proc": position - 8, "lsn_commit": position}
    fake.offsets[capture.name] = [{"partition": {"server": "src.shop"}, "offset": offset}]


def test_a_fresh_installation_may_start_first_and_not_otherwise(
    capture: Capture,
) -> None:
    assert refused(capture, Start.FIRST) == []
    assert refused(capture) == ["position-missing"]


def test_a_position_at_the_slot_and_at_the_end_of_the_wal_are_both_healthy(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    hold(fake, capture, outbox.confirmed())
    assert refused(capture) == []
    outbox.record("k1")
    end = outbox.execute("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")
    hold(fake, capture, int(end))
    assert refused(capture) == []


def test_a_slot_advanced_past_a_row_is_seen(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    hold(fake, capture, outbox.confirmed())
    outbox.record("k1")
    outbox.advance()
    assert refused(capture) == ["slot-ahead"]


def test_a_slot_made_anew_behind_our_back_is_seen(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    hold(fake, capture, outbox.confirmed())
    outbox.drop_slot()
    assert refused(capture) == ["slot-missing"]
    outbox.record("k1")
    outbox.create_slot()
    assert refused(capture) == ["slot-ahead"]


def test_a_database_that_went_back_in_time_is_seen(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    hold(fake, capture, outbox.confirmed() + (1 << 30))
    assert refused(capture) == ["position-future"]


def test_a_slot_of_another_plugin_is_seen(capture: Capture, outbox: Outbox) -> None:
    outbox.drop_slot()
    outbox.execute("SELECT pg_create_physical_replication_slot(%s)", outbox.slot)
    assert refused(capture, Start.FIRST) == ["slot-kind"]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("ALTER PUBLICATION {} SET (publish = 'insert, update')", "sends updates"),
        ("ALTER PUBLICATION {} SET (publish = 'insert, delete')", "sends deletes"),
        ("ALTER PUBLICATION {} SET (publish = 'insert, truncate')", "sends truncates"),
        ("ALTER PUBLICATION {} SET (publish = '')", "does not send inserts"),
        ("ALTER PUBLICATION {} SET (publish_via_partition_root = false)", "root's name"),
        ("ALTER PUBLICATION {} ADD TABLE metering.usage_key", "metering.usage_key"),
        ("ALTER PUBLICATION {} SET TABLE metering.usage_key", "sends metering.usage_key"),
        (
            "ALTER PUBLICATION {} SET TABLE metering.usage_outbox WHERE (kafka_key <> 'x')",
            "leaves out",
        ),
        (
            "ALTER PUBLICATION {} SET TABLE metering.usage_outbox (event_id, payload)",
            "leaves out",
        ),
        ("ALTER PUBLICATION {} ADD TABLES IN SCHEMA metering", "metering.usage_key"),
        ("DROP PUBLICATION {}", "does not exist"),
    ],
)
def test_a_publication_that_sends_more_or_less_than_the_outbox_is_seen(
    capture: Capture, outbox: Outbox, statement: str, says: str
) -> None:
    outbox.execute(statement.format(outbox.publication))
    found = must_stop(capture.look(Start.FIRST))
    assert {finding.rule for finding in found} <= {"publication", "publication-missing"}
    assert any(says in finding.evidence for finding in found)


def test_another_cluster_or_timeline_is_seen(capture: Capture) -> None:
    moved = replace(capture.identity, timeline=capture.identity.timeline + 1)
    copied = replace(capture.identity, system_identifier="1")
    for identity in (moved, copied):
        assert refused(replace(capture, identity=identity), Start.FIRST) == ["identity"]


def test_the_capture_role_needs_no_more_than_login_and_replication(
    capture: Capture, outbox: Outbox
) -> None:
    role = f"cdc_{outbox.database}"
    outbox.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    try:
        narrow = replace(
            capture,
            connect=lambda: psycopg.connect(f"{outbox.dsn} user={role}", autocommit=True),
        )
        assert refused(narrow, Start.FIRST) == []
    finally:
        outbox.execute(f"DROP ROLE {role}")


def test_a_running_connector_whose_slot_nobody_reads_raises_an_alarm(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    hold(fake, capture, outbox.confirmed(), "RUNNING")
    assert [finding.rule for finding in capture.look(Start.GO_ON)] == ["slot-idle"]


def test_a_reader_of_the_slot_beside_a_stopped_connector_is_seen(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    hold(fake, capture, outbox.confirmed())
    with outbox.reading():
        assert refused(capture) == ["slot-taken"]


def test_a_database_that_is_away_is_a_sentence_not_a_traceback(
    capture: Capture,
) -> None:
    away = replace(
        capture,
        connect=lambda: psycopg.connect("host=127.0.0.1 port=1 user=x", autocommit=True),
    )
    with pytest.raises(SourceUnavailableError, match="source shop: its database"):
        away.look(Start.GO_ON)
