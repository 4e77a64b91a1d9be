from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.connect_answers import ConnectorStatus, Offsets
from connectors.observation import Observation, Publication, PublishedTable, Slot
from connectors.slot_guard import Expected, GuardFinding, Severity, Start, judge, must_stop
from connectors.source_config import SourceSettings, render
from connectors.source_registry import SourceIdentity

SETTINGS = SourceSettings("shop", "127.0.0.1", 5432, "service", ssl_mode="disable")
IDENTITY = SourceIdentity("shop", "7301", 1)
CONFIG = render(SETTINGS)
OUTBOX = PublishedTable("metering", "usage_outbox", row_filter=False, column_list=False)
PUBLICATION = Publication(
    pubinsert=True,
    pubupdate=False,
    pubdelete=False,
    pubtruncate=False,
    pubviaroot=True,
    puballtables=False,
    tables=(OUTBOX,),
)
SLOT = Slot(
    slot_type="logical",
    plugin="pgoutput",
    database="service",
    active=True,
    active_pid=4711,
    wal_status="reserved",
    safe_wal_bytes=None,
    restart_lsn=900,
    confirmed_lsn=1000,
)
EXPECTED = Expected(IDENTITY, SETTINGS, CONFIG)


def status(connector: str, *tasks: str, trace: str = "boom\n\tat x") -> ConnectorStatus:
    body = {
        "name": "outbox-shop",
        "connector": {"state": connector},
        "tasks": [
            {"id": n, "state": state, "trace": trace if state == "FAILED" else ""}
            for n, state in enumerate(tasks)
        ],
    }
    return msgspec.convert(body, ConnectorStatus)


def offsets(prefix: str = "src.shop", **position: int) -> Offsets:
    stored = {"partition": {"server": prefix}, "offset": position or None}
    return msgspec.convert({"offsets": [stored]}, Offsets)


HEALTHY = Observation(
    identity=IDENTITY,
    database="service",
    standby=False,
    server_version=150018,
    slot=SLOT,
    publication=PUBLICATION,
    written_lsn=1200,
    offsets=offsets(lsn=800, lsn_proc=900, lsn_commit=1000),
    status=status("RUNNING", "RUNNING"),
    config=CONFIG,
)


def rules(findings: list[GuardFinding]) -> list[str]:
    return [finding.rule for finding in findings]


def test_a_healthy_source_is_left_in_peace() -> None:
    assert judge(HEALTHY, EXPECTED) == []


def slot(**changes: Any) -> Observation:
    return replace(HEALTHY, slot=replace(SLOT, **changes))


def publication(**changes: Any) -> Observation:
    return replace(HEALTHY, publication=replace(PUBLICATION, **changes))


REFUSED: list[tuple[str, Observation]] = [
    ("standby", replace(HEALTHY, standby=True, written_lsn=None)),
    ("identity", replace(HEALTHY, identity=replace(IDENTITY, system_identifier="7302"))),
    ("identity", replace(HEALTHY, identity=replace(IDENTITY, timeline=2))),
    ("database", replace(HEALTHY, database="other")),
    ("slot-missing", replace(HEALTHY, slot=None)),
    ("slot-kind", slot(plugin="test_decoding")),
    ("slot-kind", slot(database="other")),
    ("slot-kind", slot(slot_type="physical", plugin=None, database=None)),
    ("slot-wal", slot(wal_status="unreserved")),
    ("slot-wal", slot(wal_status="lost")),
    ("slot-wal", slot(wal_status=None)),
    ("slot-ahead", slot(confirmed_lsn=1001)),
    ("slot-ahead", slot(confirmed_lsn=1000 + 3848)),
    ("position-future", replace(HEALTHY, written_lsn=999, slot=replace(SLOT, confirmed_lsn=500))),
    ("position-missing", replace(HEALTHY, offsets=offsets())),
    ("position-missing", replace(HEALTHY, offsets=Offsets([]))),
    ("position-missing", replace(HEALTHY, offsets=None)),
    ("publication-missing", replace(HEALTHY, publication=None)),
    ("publication", publication(pubinsert=False)),
    ("publication", publication(pubupdate=True)),
    ("publication", publication(pubdelete=True)),
    ("publication", publication(pubtruncate=True)),
    ("publication", publication(pubviaroot=False)),
    ("publication", publication(puballtables=True)),
    ("publication", publication(tables=())),
    ("publication", publication(tables=(OUTBOX, replace(OUTBOX, table_name="usage_key")))),
    ("publication", publication(tables=(replace(OUTBOX, table_name="usage_outbox_p1"),))),
    ("publication", publication(tables=(replace(OUTBOX, row_filter=True),))),
    ("publication", publication(tables=(replace(OUTBOX, column_list=True),))),
    ("slot-taken", replace(HEALTHY, status=status("STOPPED"))),
    ("config-unsafe", replace(HEALTHY, config={**CONFIG, "errors.tolerance": "all"})),
    ("config-unsafe", replace(HEALTHY, config={**CONFIG, "slot.drop.on.stop": "true"})),
]


@pytest.mark.parametrize(("rule", "seen"), REFUSED)
def test_what_can_lose_rows_is_refused_with_its_repair(rule: str, seen: Observation) -> None:
    found = judge(seen, EXPECTED)
    assert rules(must_stop(found)) == [rule]
    assert found[0].evidence
    assert found[0].repair


ALARMS: list[tuple[str, Observation]] = [
    ("failed", replace(HEALTHY, status=status("RUNNING", "FAILED"))),
    ("failed", replace(HEALTHY, status=status("FAILED"))),
    ("failed", replace(HEALTHY, status=status("RUNNING", "RUNNING", "FAILED"))),
    ("task-missing", replace(HEALTHY, status=status("RUNNING"))),
    ("task-missing", replace(HEALTHY, status=status("RUNNING", "UNASSIGNED"))),
    ("slot-idle", slot(active=False, active_pid=None)),
    ("config-drift", replace(HEALTHY, config={**CONFIG, "poll.interval.ms": "100"})),
    ("slot-behind", replace(HEALTHY, written_lsn=1000 + (1 << 30) + 1)),
    ("slot-endangered", slot(safe_wal_bytes=(1 << 30) - 1)),
]


@pytest.mark.parametrize(("rule", "seen"), ALARMS)
def test_what_only_needs_eyes_stops_nothing(rule: str, seen: Observation) -> None:
    found = judge(seen, EXPECTED)
    assert rules(found) == [rule]
    assert found[0].severity is Severity.ALARM
    assert must_stop(found) == []


def test_rows_that_can_never_be_decoded_are_not_restarted_into_again_and_again() -> None:
    trace = (
        "org.apache.kafka.connect.errors.ConnectException: An exception occurred\n"
        'Caused by: org.postgresql.util.PSQLException: ERROR: publication "m" does not exist\n'
    )
    found = judge(replace(HEALTHY, status=status("RUNNING", "FAILED", trace=trace)), EXPECTED)
    assert rules(must_stop(found)) == ["undecodable"]


@pytest.mark.parametrize(
    "said",
    ["Unable to find payload field payload in event", "kafka_key is not a valid field name"],
)
def test_rows_written_under_other_columns_are_told_by_what_the_router_lacks(said: str) -> None:
    """Its restart meets the same row again: the WAL keeps the names of its time."""
    trace = (
        "org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error handler\n"
        "\tat org.apache.kafka.connect.runtime\n"
        f"Caused by: org.apache.kafka.connect.errors.DataException: {said}\n"
    )
    [found] = must_stop(
        judge(replace(HEALTHY, status=status("RUNNING", "FAILED", trace=trace)), EXPECTED)
    )
    assert found.rule == "unroutable"
    assert said in found.evidence
    assert "`tailrace connector repair`" in found.repair
    assert "even if healthy" in found.repair


def test_a_stopped_connector_with_a_free_slot_may_start() -> None:
    seen = replace(slot(active=False, active_pid=None), status=status("STOPPED"))
    assert judge(seen, EXPECTED) == []


def test_the_last_record_is_no_watermark() -> None:
    # A row of an older transaction lies below a later commit: comparing with `lsn` or `lsn_proc`
    # would call this healthy pair broken.
    seen = replace(HEALTHY, offsets=offsets(lsn=400, lsn_proc=500, lsn_commit=1000))
    assert judge(seen, EXPECTED) == []


def test_after_one_transaction_the_handled_position_is_compared() -> None:
    assert judge(replace(HEALTHY, offsets=offsets(lsn=1, lsn_proc=1000)), EXPECTED) == []
    found = judge(replace(HEALTHY, offsets=offsets(lsn=2000, lsn_proc=999)), EXPECTED)
    assert rules(found) == ["slot-ahead"]


@pytest.mark.parametrize("start", [Start.FIRST, Start.REPAIR])
def test_a_first_start_and_a_repair_need_no_position(start: Start) -> None:
    for offset in (None, Offsets([]), offsets()):
        assert judge(replace(HEALTHY, offsets=offset), replace(EXPECTED, start=start)) == []


@pytest.mark.parametrize("start", list(Start))
def test_a_position_that_is_there_is_compared_whatever_the_start(start: Start) -> None:
    found = judge(slot(confirmed_lsn=1001), replace(EXPECTED, start=start))
    assert rules(found) == ["slot-ahead"]


def test_a_position_under_another_prefix_is_refused() -> None:
    found = judge(replace(HEALTHY, offsets=offsets("src.old", lsn_commit=1000)), EXPECTED)
    assert rules(must_stop(found)) == ["position-foreign", "position-missing"]


def test_the_amount_ahead_is_named_and_the_repair_too() -> None:
    found = judge(slot(confirmed_lsn=1000 + 3392), EXPECTED)
    assert "3392 bytes" in str(found[0])
    assert "re-emits the outbox" in str(found[0])


def test_the_pid_that_holds_the_slot_is_named() -> None:
    found = judge(replace(HEALTHY, status=status("STOPPED")), EXPECTED)
    assert "4711" in found[0].evidence


def test_refusals_come_before_alarms() -> None:
    seen = replace(slot(confirmed_lsn=2000), status=status("RUNNING", "FAILED"))
    assert rules(judge(seen, EXPECTED)) == ["slot-ahead", "failed"]


@pytest.mark.parametrize(("age_s", "found"), [(None, []), (119.0, []), (121.0, ["canary-old"])])
def test_the_age_of_the_canary_is_the_proof_of_flow(age_s: float | None, found: list[str]) -> None:
    assert rules(judge(HEALTHY, replace(EXPECTED, canary_age_s=age_s))) == found


def test_before_the_connector_exists_only_the_database_is_judged() -> None:
    seen = replace(slot(active=False, active_pid=None), offsets=None, status=None, config=None)
    assert judge(seen, replace(EXPECTED, start=Start.FIRST)) == []


@given(confirmed=st.integers(0, 3000), stored=st.integers(0, 3000), written=st.integers(0, 3000))
def test_rows_may_flow_exactly_when_confirmed_le_stored_le_written(
    confirmed: int, stored: int, written: int
) -> None:
    seen = replace(
        HEALTHY,
        slot=replace(SLOT, confirmed_lsn=confirmed),
        offsets=offsets(lsn_commit=stored),
        written_lsn=written,
    )
    assert (must_stop(judge(seen, EXPECTED)) == []) is (confirmed <= stored <= written)
