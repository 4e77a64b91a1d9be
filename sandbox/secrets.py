"""The passwords of one sandbox: generated once, kept in a file that only the owner reads."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from sandbox.paths import read_json, write_json
from streams.cli.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Secrets:
    """One password per login of the database server."""

    superuser: str
    writer: str
    """The service that records usage and corrections."""
    cdc: str
    """Debezium."""
    ops: str
    """The worker's and the auditor's view of the service's database."""
    ledger: str
    """The worker's login to the ledger."""


def same(password: str) -> Secrets:
    """One password for every login: for containers that nobody else can reach.

    Raises:
        ConfigurationError: It is empty.
    """
    if not password:
        fix = "set it to the superuser's password, which every login gets"
        raise ConfigurationError("SANDBOX_PASSWORD: is not set", fix=fix)
    return Secrets(*(password for _ in fields(Secrets)))


def load_or_make(file: Path) -> Secrets:
    """The kept passwords; generated and written the first time."""
    kept = read_json(file)
    if kept is not None:
        return Secrets(**{field.name: str(kept[field.name]) for field in fields(Secrets)})
    made = Secrets(*(secrets.token_hex(16) for _ in fields(Secrets)))
    write_json(file, asdict(made))
    return made
