"""What differs between sources, and the rules it must keep before a config is made of it."""

import re
from dataclasses import dataclass

from connectors import names

_SSL_MODES = ("verify-full", "verify-ca", "require", "disable")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_VARIABLE = re.compile(r"METERING_[A-Z0-9_]{1,100}")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What differs between sources; everything else is the same for all and fixed in `options`."""

    source: str
    """The outbox's name as fixed in its database."""
    host: str
    """Host name or address of the database, as seen from the Connect worker."""
    port: int
    """TCP port of the database."""
    database: str
    """Database that holds the outbox."""
    user: str = names.CDC_ROLE
    """Role with LOGIN and REPLICATION, nothing else."""
    password_variable: str = names.PASSWORD_VARIABLE
    """Variable of the Connect worker's environment that holds the password."""
    ssl_mode: str = "verify-full"
    """`disable` is for a database on the loopback interface or a private container network only."""
    ssl_root_cert: str | None = None
    """Root certificate's path on the Connect worker; None takes the driver's default file."""
    topic: str = names.USAGE_TOPIC
    """Topic every row goes to."""
    slot: str = names.SLOT
    """Replication slot; made beforehand."""
    publication: str = names.PUBLICATION
    """Insert-only publication; made beforehand."""
    exactly_once: bool = False
    """Ask for transactional writes; needs workers with `exactly.once.source.support=enabled`."""


def _listed(settings: SourceSettings) -> list[str | None]:
    return [
        names.source_problem(settings.source),
        None if settings.host.strip() else "host: empty; give the database's host name",
        None if 0 < settings.port < 65536 else f"port: {settings.port} is not within 1..65535",
        None if settings.database.strip() else "database: empty; give the database's name",
        None if settings.user.strip() else "user: empty; give the CDC role's name",
        None
        if settings.ssl_mode in _SSL_MODES
        else f"ssl_mode: {settings.ssl_mode!r} is not one of {', '.join(_SSL_MODES)}",
        None
        if _TOPIC.fullmatch(settings.topic)
        else f"topic: {settings.topic!r} is not a Kafka topic name",
        None
        if _IDENTIFIER.fullmatch(settings.slot)
        else f"slot: {settings.slot!r} is not a slot name (lower case letters, digits, '_')",
        None
        if _IDENTIFIER.fullmatch(settings.publication)
        else f"publication: {settings.publication!r} is not a plain lower case identifier",
        None
        if _VARIABLE.fullmatch(settings.password_variable)
        else f"password_variable: {settings.password_variable!r} must start with METERING_, "
        "the only names a Connect worker hands out",
    ]


def problems(settings: SourceSettings) -> list[str]:
    """Every rule the settings break, one line each; empty when they can be rendered."""
    return [line for line in _listed(settings) if line is not None]
