"""What a correction is about: options of the command line → tenant, metric, instant, units, key."""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from streams.cli import terminal
from streams.cli.database import Connection, connected, decision_rows, rows
from streams.cli.errors import UnavailableError, UsageProblemError
from streams.cli.options import read_instant
from streams.cli.stack import Stack
from streams.core.identity import event_id
from streams.core.quantity import to_units


class Wanted(NamedTuple):
    """One correction; `instant_us` lies in the window that is corrected."""

    tenant: str
    metric: str
    instant_us: int
    units: int
    key: str
    target: str | None

    def values(self) -> dict[str, Any]:
        """As parameters of the ledger's statements."""
        return self._asdict()


class Target(NamedTuple):
    """A usage event as it is known: where and when."""

    metric: str
    occurred_us: int
    event_id: str


def wanted_correction(  # noqa: PLR0913, PLR0917 - one parameter an option
    ledger: Connection,
    stack: Stack,
    tenant: str,
    metric: str | None,
    event_key: str | None,
    window: str | None,
    delta: str,
    key: str,
) -> Wanted:
    """Reads the options.

    Raises:
        UsageProblemError: naming the option and the rule it breaks.
        psycopg.Error: the ledger refused or went away.
    """
    if event_key and window:
        raise UsageProblemError(
            "--event-key, --window: one says it already",
            fix="give the event's key, or any instant of its window",
        )
    if event_key:
        target = _find(ledger, stack, tenant, event_key)
        if metric and metric != target.metric:
            raise UsageProblemError(
                f"--metric: {event_key} is usage of {target.metric}, not of {metric}",
                fix="leave --metric out",
            )
        units = _units(ledger, target.metric, target.occurred_us, delta)
        return Wanted(tenant, target.metric, target.occurred_us, units, key, target.event_id)
    instant_us = read_instant("--window", window or "", "2026-11-29T10:00:00Z")
    units = _units(ledger, metric or "", instant_us, delta)
    return Wanted(tenant, metric or "", instant_us, units, key, None)


def reversal(ledger: Connection, key: str, tenant: str | None) -> Wanted:
    """The opposite of a booked correction, under a key that follows from its own.

    Raises:
        UsageProblemError: no correction has the key, or several tenants' have.
        psycopg.Error: the ledger refused or went away.
    """
    found = decision_rows(ledger, "corrections", {"tenant": tenant, "key": key})
    if not found:
        raise UsageProblemError(
            f"KEY: no correction in the books has the key {key!r}",
            fix="see them with `tailrace correct list --all`",
        )
    if len(found) > 1:
        tenants = ", ".join(sorted({row["tenant_id"] for row in found}))
        raise UsageProblemError(
            f"KEY: {key!r} names {len(found)} corrections, of {tenants}",
            fix="say whose with --tenant",
        )
    entry = found[0]
    # The window in which it was booked: a carried one is taken back where it was billed.
    return Wanted(
        entry["tenant_id"], entry["metric"], entry["window_start_us"], -int(entry["units"]),
        f"reversal of {key}", entry["target"],
    )  # fmt: skip


def _find(ledger: Connection, stack: Stack, tenant: str, event_key: str) -> Target:
    """By the registry of the service; where that cannot be read, by the ledger's own rows."""
    settings = stack.settings
    if settings.source_dsn:
        try:
            with connected(settings.source_dsn, "the service's database") as registry:
                which = {"tenant_id": tenant, "event_key": event_key}
                for row in rows(registry, "trace_registry", which):
                    if row["kind"] == "usage":
                        return Target(row["metric"], row["occurred_us"], row["event_id"])
        except (UnavailableError, psycopg.errors.InsufficientPrivilege) as error:
            terminal.say(f"registry not read ({error}); the ledger alone is asked")
    identity = str(UUID(bytes=event_id(settings.source, tenant, event_key)))
    for row in decision_rows(ledger, "event_known", {"event_id": identity}):
        return Target(row["metric"], row["occurred_us"], identity)
    raise UsageProblemError(
        f"--event-key: {tenant} {event_key} is not known here",
        fix="name the window instead: `--metric M --window 2026-11-29T10:00:00Z`",
    )


def _units(ledger: Connection, metric: str, instant_us: int, delta: str) -> int:
    found = decision_rows(ledger, "metric_scale", {"metric": metric, "instant_us": instant_us})
    if not found:
        raise UsageProblemError(
            f"--metric: the catalogue has no {metric} at that time",
            fix="see the meters with `tailrace meters check`",
        )
    try:
        return to_units(delta.removeprefix("+"), int(found[0]["scale"]))
    except ValueError as error:
        raise UsageProblemError(f"--delta: {delta!r} {error}", fix="`--delta -20`") from error
