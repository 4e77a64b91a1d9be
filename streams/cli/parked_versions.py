"""The other versions of a parked item: what else was recorded, or is in the books, under its key.

The ledger has no row per event where a meter adds up, so the first version of a conflict stands in
the service's registry; where that cannot be read, its digest is all that is known.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg

from streams.cli import terminal
from streams.cli.database import Connection, connected, decision_rows, rows
from streams.cli.document import instant_text
from streams.cli.errors import UnavailableError
from streams.cli.stack import Stack
from streams.core.quantity import to_units


@dataclass(frozen=True, slots=True)
class Version:
    """One version. `counted`: it is what the amounts hold now."""

    told_by: str
    counted: bool
    metric: str | None
    quantity: str | None
    units: int | None
    occurred_us: int | None
    received_us: int | None

    def text(self) -> str:
        """One line."""
        amount = f"{self.quantity} ({self.units} units)" if self.quantity else f"{self.units} units"
        counted = "counted" if self.counted else "not counted"
        return (
            f"{self.told_by}: {amount} of {self.metric}, {counted}; occurred "
            f"{instant_text(self.occurred_us)}, received {instant_text(self.received_us)}"
        )

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "told_by": self.told_by,
            "counted": self.counted,
            "metric": self.metric,
            "quantity": self.quantity,
            "units": None if self.units is None else str(self.units),
            "occurred_at": instant_text(self.occurred_us),
            "received_at": instant_text(self.received_us),
        }


def read_versions(ledger: Connection, stack: Stack, parked: dict[str, Any]) -> list[Version]:
    """Everything else under the item's identity; the first recording before the others.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    if parked["event_id"] is None:
        return []
    which = {"event_id": parked["event_id"], "item": parked["parked_id"]}
    found = decision_rows(ledger, "item_versions", which)
    known = [
        Version(
            row["told_by"], row["counted"], row["metric"], None,
            None if row["units"] is None else int(row["units"]),
            row["occurred_us"], row["received_us"],
        )
        for row in found
    ]  # fmt: skip
    if parked["reason"] != "conflict" or any(row["counted"] or row["first"] for row in found):
        return known
    return [*_registered(stack, parked), *known]


def _registered(stack: Stack, parked: dict[str, Any]) -> list[Version]:
    key, dsn = _event_key(parked["record"]), stack.settings.source_dsn
    if key is None or not dsn:
        terminal.say("the first version is not shown: TAILRACE_SOURCE_DSN is not set")
        return []
    try:
        with connected(dsn, "the service's database") as registry:
            which = {"tenant_id": parked["tenant_id"], "event_key": key}
            found = rows(registry, "trace_registry", which)
    except (UnavailableError, psycopg.errors.InsufficientPrivilege) as error:
        terminal.say(f"the first version is not shown: registry not read ({error})")
        return []
    return [_first(row, parked) for row in found if row["event_id"] == parked["event_id"]]


def _first(row: dict[str, Any], parked: dict[str, Any]) -> Version:
    try:
        units = to_units(row["quantity"], parked["scale"] or 0)
    except ValueError:
        units = None
    return Version(
        "registry", True, row["metric"], row["quantity"], units, row["occurred_us"],
        row["received_us"],
    )  # fmt: skip


def _event_key(record: bytes | None) -> str | None:
    try:
        document = msgspec.json.decode(record or b"")
    except msgspec.DecodeError:
        return None
    key = document.get("event_key") if isinstance(document, dict) else None
    return key if isinstance(key, str) else None
