"""What the steps of an installation are told: addresses, passwords and the logins they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.postgres import SUPERUSER
from streams.cli.errors import UsageProblemError

if TYPE_CHECKING:
    from sandbox.secrets import Secrets

WRITER = "service_writer"
OPS = "service_ops"
LEDGER = "ledger_worker"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int


def address(text: str) -> Address:
    """The address in `HOST:PORT`.

    Raises:
        UsageProblemError: The text has another form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        fix = "write it as 127.0.0.1:5432"
        raise UsageProblemError(f"address {text!r}: expected HOST:PORT", fix=fix)
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Installation:
    """The addresses and passwords the steps work with."""

    database: Address
    """The database server, as seen from here."""
    database_of_connect: Address
    """The same, as seen from Connect."""
    secrets: Secrets
    bootstrap: str
    connect_url: str

    def dsn(self, database: str, login: str = SUPERUSER, password: str | None = None) -> str:
        """A connection string of the URL form; the superuser's unless a login is named."""
        secret = password or self.secrets.superuser
        where = f"{self.database.host}:{self.database.port}"
        return f"postgresql://{login}:{secret}@{where}/{database}"

    @property
    def writer_login(self) -> str:
        """Who records usage."""
        return WRITER

    @property
    def ops_login(self) -> str:
        """Who audits the service's database."""
        return OPS

    @property
    def ledger_login(self) -> str:
        """Who the workers are in the ledger."""
        return LEDGER

    @property
    def writer_dsn(self) -> str:
        """The login of the service that records usage."""
        return self.dsn("service", WRITER, self.secrets.writer)

    @property
    def ops_dsn(self) -> str:
        """The login of workers and auditors to the service's database."""
        return self.dsn("service", OPS, self.secrets.ops)

    @property
    def ledger_dsn(self) -> str:
        """The login of workers to the ledger."""
        return self.dsn("ledger", LEDGER, self.secrets.ledger)
