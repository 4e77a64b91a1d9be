"""Calls of the outbox as tests write them, and its rules written a second time in Python."""

from __future__ import annotations

from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

Row = dict[str, Any]

RECORD = """
    SELECT * FROM metering.record_usage(
        tenant_id => %(tenant_id)s, metric => %(metric)s, quantity => %(quantity)s::numeric,
        event_key => %(event_key)s, occurred_at => %(occurred_at)s::timestamptz,
        attributes => %(attributes)s::jsonb, on_conflict => %(on_conflict)s)
"""
CORRECT = """
    SELECT * FROM metering.record_correction(
        tenant_id => %(tenant_id)s, target_event_key => %(target_event_key)s,
        delta => %(delta)s::numeric, correction_key => %(correction_key)s, reason => %(reason)s,
        authorized_by => %(authorized_by)s)
"""
USAGE: Row = {
    "tenant_id": "acme",
    "metric": "api_calls",
    "quantity": "3",
    "event_key": "k1",
    "occurred_at": None,
    "attributes": None,
    "on_conflict": None,
}
CORRECTION: Row = {
    "tenant_id": "acme",
    "target_event_key": "k1",
    "delta": "-1",
    "correction_key": "c1",
    "reason": "counted a retry",
    "authorized_by": "ann",
}


def record(conn: psycopg.Connection[Row], **changed: object) -> Row:
    return one(conn, RECORD, {**USAGE, **changed})


def correct(conn: psycopg.Connection[Row], **changed: object) -> Row:
    return one(conn, CORRECT, {**CORRECTION, **changed})


def one(
    conn: psycopg.Connection[Row],
    query: str,
    values: Mapping[str, Any] | Sequence[Any] | None = None,
) -> Row:
    rows = all_of(conn, query, values)
    assert len(rows) == 1
    return rows[0]


def all_of(
    conn: psycopg.Connection[Row],
    query: str,
    values: Mapping[str, Any] | Sequence[Any] | None = None,
) -> list[Row]:
    return conn.execute(query.encode(), values).fetchall()


def outbox_rows(conn: psycopg.Connection[Row]) -> list[Row]:
    return all_of(conn, "SELECT * FROM metering.usage_outbox ORDER BY emitted_at, event_type")


def length_prefixed(*parts: str) -> bytes:
    raw = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in raw)


def identity(*parts: str) -> bytes:
    """Of (source, tenant, event key); of a correction with that very word in front of them."""
    return sha256(length_prefixed(*parts)).digest()[:16]


def content(event_id: bytes, metric: str, quantity: Decimal | str, rest: str) -> bytes:
    """`rest` is the wire text of an instant that was given, or the target of a correction."""
    text = format(Decimal(quantity), "f")
    if "." in text:
        text = text.rstrip("0").removesuffix(".")
    return sha256(event_id + length_prefixed(metric, text, rest)).digest()[:16]
