from __future__ import annotations

import uuid
from decimal import Decimal

import psycopg
import pytest

from tests.integration.outbox.conftest import Row
from tests.support.outbox import content, correct, identity, one, outbox_rows, record

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]

INHERITED = {
    "v",
    "source",
    "tenant_id",
    "kafka_key",
    "shard",
    "metric",
    "occurred_at",
    "content_version",
    "attributes",
}


@pytest.fixture(autouse=True)
def target(writer: Conn, admin: Conn) -> Row:
    admin.execute("SELECT metering.put_metric('api_calls', 2, 5)")
    return record(writer, quantity="100", occurred_at="2026-11-29 12:00:00+00")


def test_a_correction_goes_out_beside_its_target(corrector: Conn, admin: Conn, target: Row) -> None:
    result = correct(corrector, delta="-1.50")
    event_id = identity("correction", "sandbox", "acme", "c1")
    assert result["event_id"].bytes == event_id
    assert (result["status"], result["review"]) == ("recorded", False)
    usage, row = outbox_rows(admin)
    assert row["event_type"] == "usage.correction"
    payload = row["payload"]
    inherited = {k: v for k, v in usage["payload"].items() if k in INHERITED}
    own = {k: v for k, v in payload.items() if k not in {"content", "received_at"}}
    assert own == inherited | {
        "type": "correction",
        "event_id": str(uuid.UUID(bytes=event_id)),
        "event_key": "c1",
        "delta": "-1.5",
        "target_event_id": str(target["event_id"]),
        "reason": "counted a retry",
        "authorized_by": "ann",
        "review": False,
    }
    assert (row["kafka_key"], row["received_at"]) == (usage["kafka_key"], result["received_at"])
    assert (
        payload["content"]
        == content(event_id, "api_calls", Decimal("-1.50"), str(target["event_id"])).hex()
    )


def test_a_retry_is_a_duplicate_with_the_first_answer(corrector: Conn, admin: Conn) -> None:
    first = correct(corrector)
    again = correct(corrector, delta="-1.00", reason="other words", authorized_by="bob")
    assert again == {**first, "status": "duplicate"}
    assert len(outbox_rows(admin)) == 2


@pytest.mark.parametrize("changed", [{"delta": "-2"}, {"target_event_key": "k2"}])
def test_other_content_under_its_key_is_a_conflict_for_a_person(
    writer: Conn, corrector: Conn, admin: Conn, changed: Row
) -> None:
    record(writer, event_key="k2", quantity="100", occurred_at="2026-11-29 12:00:00+00")
    first = correct(corrector)
    conflict = correct(corrector, **changed)
    assert (conflict["status"], conflict["review"]) == ("conflict", True)
    assert conflict["event_id"] == first["event_id"]
    assert correct(corrector, **changed) == conflict
    assert correct(corrector)["status"] == "duplicate"
    payload = outbox_rows(admin)[-1]["payload"]
    assert payload["type"] == "conflict"
    assert payload["delta"] == changed.get("delta", "-1")
    assert "quantity" not in payload
    assert len(outbox_rows(admin)) == 4
    counted = one(admin, "SELECT count(*) AS n FROM metering.usage_correction")
    assert counted["n"] == 1, "a conflict corrects nothing"


@pytest.mark.parametrize(
    ("deltas", "reviews"),
    [
        (["-5"], [False]),
        (["-5.01"], [True]),
        (["5.01"], [True]),
        (["-3", "-3"], [False, True]),
        (["-5", "5", "-5"], [False, False, False]),
        (["-3", "-2", "-0.01"], [False, False, True]),
    ],
)
def test_above_the_limit_a_person_looks_also_for_the_sum(
    corrector: Conn, deltas: list[str], reviews: list[bool]
) -> None:
    found = [
        correct(corrector, delta=delta, correction_key=f"c{n}")["review"]
        for n, delta in enumerate(deltas)
    ]
    assert found == reviews


def test_without_a_known_limit_every_correction_is_reviewed(
    writer: Conn, corrector: Conn, admin: Conn
) -> None:
    admin.execute("SELECT metering.put_metric('storage', 2)")
    record(writer, metric="storage", event_key="k3")
    assert correct(corrector, target_event_key="k3", delta="-0.01")["review"] is True


def test_a_key_names_a_correction_and_a_usage_event_apart(
    writer: Conn, corrector: Conn, admin: Conn
) -> None:
    assert correct(corrector, correction_key="k1")["status"] == "recorded"
    assert record(writer, quantity="100", occurred_at="2026-11-29 12:00:00+00")["status"] == (
        "duplicate"
    )
    found = admin.execute("SELECT kind FROM metering.find_key('acme', 'k1')").fetchall()
    assert [row["kind"] for row in found] == ["usage", "correction"]


def test_a_correction_cannot_be_corrected(corrector: Conn) -> None:
    correct(corrector)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="names no usage event"):
        correct(corrector, target_event_key="c1", correction_key="c2")


def test_the_login_is_kept_whatever_authorized_by_claims(corrector: Conn, admin: Conn) -> None:
    correct(corrector, authorized_by="somebody else")
    row = one(admin, "SELECT recorded_by, authorized_by FROM metering.usage_correction")
    assert row == {"recorded_by": "login_metering_corrector", "authorized_by": "somebody else"}
