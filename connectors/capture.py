"""One source's capture: everything needed to look at it and to judge it, held together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import Connection

from connectors import names
from connectors.connect_client import ConnectClient
from connectors.errors import SourceUnavailableError
from connectors.guard_findings import Expected, GuardFinding, Limits, Start
from connectors.linter import Scope
from connectors.observation import Observation, observe
from connectors.slot_guard import judge
from connectors.source_config import render
from connectors.source_registry import SourceIdentity
from connectors.source_settings import SourceSettings


@dataclass(frozen=True, slots=True)
class Capture:
    """A source, its connector, and how to reach both."""

    settings: SourceSettings
    identity: SourceIdentity
    """As registered."""
    client: ConnectClient
    connect: Callable[[], Connection[Any]]
    """Opens a connection to the source's database in autocommit; it is closed after each use."""
    limits: Limits = field(default_factory=Limits)
    scope: Scope = field(default_factory=Scope)

    @property
    def name(self) -> str:
        """Name of the connector."""
        return names.connector_name(self.settings.source)

    @property
    def config(self) -> dict[str, str]:
        """The config the connector must have."""
        return render(self.settings)

    @contextmanager
    def database(self) -> Iterator[Connection[Any]]:
        """A connection to the source's database.

        Raises:
            SourceUnavailableError: in place of any error of the database.
        """
        try:
            with self.connect() as connection:
                yield connection
        except psycopg.Error as error:
            message = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SourceUnavailableError(
                f"source {self.settings.source}: its database refused or is away ({message}); "
                "see that it runs and that the role has its rights, then repeat"
            ) from error

    def look(self, start: Start, canary_age_s: float | None = None) -> list[GuardFinding]:
        """Observe once and judge.

        Args:
            start: why capture runs or is to run.
            canary_age_s: age of the oldest partition's canary, when known.

        Raises:
            SourceUnavailableError: the database is away.
            ConnectUnavailableError: Connect is away.
        """
        return judge(self.observe(), self.expected(start, canary_age_s))

    def observe(self) -> Observation:
        """Observe once.

        Raises:
            SourceUnavailableError: the database is away.
            ConnectUnavailableError: Connect is away.
        """
        with self.database() as connection:
            return observe(connection, self.client, self.name, self.settings)

    def expected(self, start: Start, canary_age_s: float | None = None) -> Expected:
        """What an observation of this source is compared with."""
        return Expected(
            identity=self.identity,
            settings=self.settings,
            config=self.config,
            start=start,
            limits=self.limits,
            scope=self.scope,
            canary_age_s=canary_age_s,
        )
