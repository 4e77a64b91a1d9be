"""Every store → what lies there of a tenant, and what has to be settled before it may go."""

from dataclasses import dataclass
from typing import Any, Final

from streams import topics
from streams.adapters.clock import SystemClock
from streams.cli.database import Connection, connected, row, rows
from streams.cli.mappings import mappings_of
from streams.kafka_access import client_security
from streams.settings import Settings

STATEMENT_MS: Final = 3_600_000
"""An outbox is looked through from one end to the other."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What lies where, of one moment."""

    tenant: str
    source_name: str
    now_us: int
    horizon_h: int
    source: Row
    """The service's database: what would be replaced, what is left."""
    ledger: Row
    """The same of the ledger."""
    blockers: tuple[tuple[str, int], ...]
    """What has to be settled first, and how many of it."""
    erasures: list[Row]
    """Those that were, the oldest first."""
    customers: tuple[str, ...]
    """Stripe's, by what the tenant was mapped to."""
    archive: Row
    lifetimes: dict[str, int | None]
    """By topic, milliseconds after which a record is gone at the latest."""

    @property
    def known(self) -> bool:
        """Whether anybody has heard of the tenant."""
        counts = (
            self.source["recorded"],
            *(self.ledger[name] for name in ("records", "levels", "amounts", "decisions")),
        )
        return any(counts) or bool(self.blockers or self.erasures or self.customers)

    @property
    def source_rows(self) -> int:
        """Rows of the service's database that hold words."""
        return source_rows(self.source)

    @property
    def to_replace(self) -> int:
        """Rows of all stores that hold words."""
        return self.source_rows + int(self.ledger["records"]) + int(self.ledger["entries"])


def source_rows(erasable: Row) -> int:
    """How many rows an erasure would replace in the service's database."""
    return sum(int(erasable[f"{name}_rows"]) for name in ("outbox", "correction", "conflict"))


def read_found(settings: Settings, tenant: str) -> Found:
    """Looks everywhere; changes nothing. Blocks for as long as it takes to read the outbox.

    Raises:
        UnavailableError, TopicsError: a database or the broker does not answer.
        psycopg.Error: a database refused.
    """
    lifetimes = topics.lifetimes(settings.kafka_bootstrap, client_security(settings))
    with connected(settings.source_dsn, "the service's database", STATEMENT_MS) as service:
        source = row(service, "source_erasable", {"tenant": tenant})
    with connected(settings.ledger_dsn, "the ledger", STATEMENT_MS) as ledger:
        return Found(
            tenant=tenant,
            source_name=str(source["source"]),
            now_us=SystemClock().now_us(),
            horizon_h=settings.horizon_h,
            source=source,
            ledger=row(ledger, "erasable", {"tenant": tenant}),
            blockers=_blockers(ledger, tenant, source),
            erasures=rows(ledger, "erasures", {"tenant": tenant}),
            customers=_customers(ledger, tenant),
            archive=row(ledger, "archived_total"),
            lifetimes=lifetimes,
        )


def _blockers(ledger: Connection, tenant: str, source: Row) -> tuple[tuple[str, int], ...]:
    unproven = int(source["unproven"])
    first = (("unproven_identities", unproven),) if unproven else ()
    told = rows(ledger, "erasure_blockers", {"tenant": tenant})
    return (*first, *((line["what"], int(line["count"])) for line in told))


def _customers(ledger: Connection, tenant: str) -> tuple[str, ...]:
    mapped = [line.customer for line in mappings_of(ledger) if line.tenant_id == tenant]
    return tuple(dict.fromkeys(mapped))
