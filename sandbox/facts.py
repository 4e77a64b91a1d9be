"""What a running stack tells others: addresses and passwords → the content of sandbox.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox import provision

if TYPE_CHECKING:
    from sandbox.installation import Installation


def addresses(
    installation: Installation, stripe_url: str, webhook_url: str | None = None
) -> dict[str, Any]:
    """Where everything is, as seen from here; None for what is not reached from here."""
    return {
        "postgres_dsn": installation.dsn("service"),
        "writer_dsn": installation.writer_dsn,
        "ledger_dsn": installation.ledger_dsn,
        "source_dsn": installation.ops_dsn,
        "ledger_owner_dsn": installation.dsn("ledger"),
        "kafka_bootstrap": installation.bootstrap,
        "connect_url": installation.connect_url,
        "stripe_url": stripe_url,
        "webhook_url": webhook_url,
        "console_url": None,
    }


def settings(installation: Installation, stripe_url: str, stripe_key: str) -> dict[str, str]:
    """The settings that every worker and command of the service shares."""
    return {
        "TAILRACE_KAFKA_BOOTSTRAP": installation.bootstrap,
        "TAILRACE_LEDGER_DSN": installation.ledger_dsn,
        "TAILRACE_SOURCE_DSN": installation.ops_dsn,
        "TAILRACE_STRIPE_API_BASE": stripe_url,
        "TAILRACE_STRIPE_API_KEY": stripe_key,
        "TAILRACE_CONNECT_URL": installation.connect_url,
        "TAILRACE_SOURCE": provision.SOURCE,
        "TAILRACE_PARTITIONS": str(provision.PARTITIONS),
        "TAILRACE_REPLICATION": "1",
        **IMPATIENCE,
    }


IMPATIENCE = {
    # One machine and somebody who watches: a dead worker's partitions move at once, and what is
    # due is looked for all the time.
    "TAILRACE_SESSION_TIMEOUT_MS": "6000",
    "TAILRACE_HEARTBEAT_MS": "500",
    "TAILRACE_FACTS_INTERVAL_MS": "250",
    "TAILRACE_PUBLISH_INTERVAL_MS": "200",
    "TAILRACE_CATALOGUE_REFRESH_S": "5",
    "TAILRACE_PUBLISH_RATE_PER_S": "500",
    "TAILRACE_REPORT_SWEEP_S": "10",
}
"""Shorter pauses than production has."""
