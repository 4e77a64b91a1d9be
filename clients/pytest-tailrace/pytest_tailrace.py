"""Fixtures that assert what a transaction has recorded: the test's own connection → one row.

In: any connection that speaks to the outbox's database. Out: the recorded row, or an assertion that
says what is there instead. It asks `metering.find_key`, which every writer may call, and which sees
what the connection's own transaction has done.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

__all__ = ["RecordedUsage", "usage_not_recorded", "usage_recorded"]

# Without colons: SQLAlchemy would read `:MI` as a parameter.
_INSTANT = "YYYYMMDDHH24MISSUS"
_PYTHONS_INSTANT = "%Y%m%d%H%M%S%f"
_ASKED = f"""
    SELECT CAST(event_id AS text), metric, CAST(quantity AS text), CAST(conflicts AS text),
           to_char(occurred_at AT TIME ZONE 'UTC', '{_INSTANT}'),
           to_char(received_at AT TIME ZONE 'UTC', '{_INSTANT}')
    FROM metering.find_key(CAST({{}} AS text), CAST({{}} AS text)) WHERE kind = 'usage'
"""  # noqa: S608 - of constants
_BY_PLACE = _ASKED.format("%s", "%s")
_BY_NAME = _ASKED.format(":tenant_id", ":event_key")


@dataclass(frozen=True)
class RecordedUsage:
    """What stands under a key."""

    event_id: str
    metric: str
    quantity: Decimal
    conflicts: int
    """How many other contents were offered under the key and went to review."""
    occurred_at: datetime
    received_at: datetime


class UsageRecorded:
    """The fixture `usage_recorded`."""

    def __call__(  # noqa: PLR0913 - each is a member of the event
        self,
        connection: Any,
        tenant_id: str,
        event_key: str,
        *,
        metric: str | None = None,
        quantity: Decimal | int | str | None = None,
        occurred_at: datetime | None = None,
        conflicts: int = 0,
    ) -> RecordedUsage:
        """The row under the key; what is left out is not compared.

        Args:
            connection: of the test, with its transaction open or not.
            tenant_id: whose usage.
            event_key: what names the event.
            metric: the meter it must be of.
            quantity: how much it must be; exact, so no float.
            occurred_at: when it must have been; with a time zone.
            conflicts: how many other contents must have been offered.

        Raises:
            AssertionError: nothing is recorded, or something else.
            TypeError: a float, or a time without its zone.
        """
        __tracebackhide__ = True
        wanted = _wanted(metric, quantity, occurred_at) | {"conflicts": conflicts}
        found = _find(connection, tenant_id, event_key)
        if found is None:
            raise AssertionError(
                f"no usage is recorded for {tenant_id!r} under the key {event_key!r}"
            )
        wrong = [
            f"{name} is {getattr(found, name)}, not {value}"
            for name, value in wanted.items()
            if value is not None and getattr(found, name) != value
        ]
        if wrong:
            raise AssertionError(
                f"usage of {tenant_id!r} under the key {event_key!r}: {'; '.join(wrong)}"
            )
        return found


class UsageNotRecorded:
    """The fixture `usage_not_recorded`."""

    def __call__(self, connection: Any, tenant_id: str, event_key: str) -> None:
        """Nothing stands under the key.

        Raises:
            AssertionError: something does.
        """
        __tracebackhide__ = True
        found = _find(connection, tenant_id, event_key)
        if found is not None:
            raise AssertionError(
                f"usage of {tenant_id!r} under the key {event_key!r} is recorded: "
                f"{found.quantity} of {found.metric}"
            )


@pytest.fixture
def usage_recorded() -> UsageRecorded:
    """Asserts that usage is recorded under a key, in the test's own transaction."""
    return UsageRecorded()


@pytest.fixture
def usage_not_recorded() -> UsageNotRecorded:
    """Asserts that nothing is recorded under a key."""
    return UsageNotRecorded()


def _wanted(
    metric: str | None, quantity: Decimal | int | str | None, occurred_at: datetime | None
) -> dict[str, Any]:
    if isinstance(quantity, float):
        raise TypeError("quantity: a float is not exact; give an int, a Decimal or a text")
    if occurred_at is not None and occurred_at.utcoffset() is None:
        raise TypeError("occurred_at: give it with its time zone")
    exact = None if quantity is None else Decimal(quantity)
    return {"metric": metric, "quantity": exact, "occurred_at": occurred_at}


def _find(connection: Any, tenant_id: str, event_key: str) -> RecordedUsage | None:
    row = _row(connection, tenant_id, event_key)
    if row is None:
        return None
    event_id, metric, quantity, conflicts, occurred_at, received_at = row
    return RecordedUsage(
        event_id, metric, Decimal(quantity), int(conflicts), _utc(occurred_at), _utc(received_at)
    )


def _utc(text: str) -> datetime:
    return datetime.strptime(text, _PYTHONS_INSTANT).replace(tzinfo=UTC)


def _row(connection: Any, tenant_id: str, event_key: str) -> Sequence[str] | None:
    """The columns as texts, whatever library and kind of row the test has chosen."""
    if inspect.iscoroutinefunction(getattr(connection, "commit", None)):
        raise TypeError("connection: is asynchronous; give one that answers at once")
    if _is_of(connection, "sqlalchemy"):
        statement = importlib.import_module("sqlalchemy").text(_BY_NAME)
        found = connection.execute(statement, {"tenant_id": tenant_id, "event_key": event_key})
        row = found.first()
        return None if row is None else tuple(row)
    with closing(_cursor(connection)) as cursor:
        cursor.execute(_BY_PLACE, (tenant_id, event_key))
        row = cursor.fetchone()
    if isinstance(row, Mapping):
        return tuple(row.values())
    return None if row is None else tuple(row)


def _cursor(connection: Any) -> Any:
    if _is_of(connection, "psycopg"):
        # The connection's own rows may be objects of any kind.
        return connection.cursor(row_factory=importlib.import_module("psycopg.rows").tuple_row)
    return connection.cursor()


def _is_of(connection: Any, package: str) -> bool:
    """Whether it is the library's own, or made of it."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(connection).__mro__)
