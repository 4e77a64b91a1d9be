"""A source is registered once: which cluster and which timeline its name means, for ever.

A database that was restored, failed over or copied is another one to capture, though its tables
look the same: positions in its WAL mean something else, and rows that reached Kafka may never have
existed there. So a changed identity is refused, and accepted again only as part of a repair.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from psycopg import Connection

from connectors.capture_queries import rows
from connectors.errors import SourceChangedError, SourceUnknownError


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """A source's name and the cluster and timeline it stands for."""

    source: str
    """Name fixed in the outbox's database."""
    system_identifier: str
    """PostgreSQL's number of the cluster; a file copy of the cluster has the same."""
    timeline: int
    """Grows with each promotion and each restore to a point in time."""


class SourceStore(Protocol):
    """Where registered sources are remembered: outside the source's own database."""

    def find(self, source: str) -> SourceIdentity | None:
        """The registered identity, or None."""
        ...

    def add(self, identity: SourceIdentity) -> None:
        """Remember an identity; leave an existing one of that name as it is."""
        ...

    def replace(self, old: SourceIdentity, new: SourceIdentity) -> bool:
        """Put `new` in the place of `old`; False, and nothing done, when `old` is not there."""
        ...


def identify(connection: Connection[Any], source: str) -> SourceIdentity:
    """Ask a service's database which cluster and timeline it is.

    Raises:
        psycopg.Error: the database is away.
    """
    row = rows(connection, "server_identity")[0]
    return SourceIdentity(source, row["system_identifier"], row["timeline"])


def register(store: SourceStore, seen: SourceIdentity) -> bool:
    """Register a source; harmless to repeat.

    Returns:
        Whether the source was new: only then may its connector start without a stored position.

    Raises:
        SourceChangedError: the name is registered for another cluster or timeline.
    """
    known = store.find(seen.source)
    if known is None:
        store.add(seen)
    stored = expect(store, seen.source)
    if stored != seen:
        raise changed_error(stored, seen)
    return known is None


def expect(store: SourceStore, source: str) -> SourceIdentity:
    """The identity a source must have.

    Raises:
        SourceUnknownError: it was never registered.
    """
    stored = store.find(source)
    if stored is None:
        raise SourceUnknownError(source)
    return stored


def changed_error(stored: SourceIdentity, seen: SourceIdentity) -> SourceChangedError:
    """The refusal for a source whose database is not the registered one."""
    return SourceChangedError(
        f"source {seen.source}: registered for cluster {stored.system_identifier} timeline "
        f"{stored.timeline}, but this is cluster {seen.system_identifier} timeline "
        f"{seen.timeline}. After a restore or failover run the repair "
        "(`tailrace connector repair --accept-identity`); "
        "a copy of a database must not capture under its original's name"
    )
