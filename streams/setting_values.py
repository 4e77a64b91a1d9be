"""What a setting may be: the text that somebody wrote → its value, or the rule it breaks."""

import re
from collections.abc import Callable
from typing import Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from connectors.names import SOURCE_NAME
from streams.core.catalogue import PLAIN_NAME
from streams.crash_points import crash_at

_BROKER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,/]+):[0-9]{1,5}")


def text(value: str) -> str:
    """Anything."""
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number within bounds."""

    def parse(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            message = f"must be a whole number from {least} to {most}"
            raise ValueError(message)
        return int(value)

    return parse


def choice(*choices: str) -> Callable[[str], str]:
    """One of a few words."""

    def parse(value: str) -> str:
        if value not in choices:
            message = f"must be one of {', '.join(choices)}"
            raise ValueError(message)
        return value

    return parse


def url(value: str) -> str:
    """An http address, without a slash at its end."""
    if not value.startswith(("http://", "https://")):
        message = "must start with http:// or https://"
        raise ValueError(message)
    return value.rstrip("/")


def name(value: str) -> str:
    """A plain name, or nothing."""
    if value and PLAIN_NAME.fullmatch(value) is None:
        message = "must have 1 to 100 of A-Z a-z 0-9 _ . : - and begin with a letter or digit"
        raise ValueError(message)
    return value


def outbox(value: str) -> str:
    """The name of an outbox."""
    if SOURCE_NAME.fullmatch(value) is None:
        message = "must have 1 to 63 of a-z 0-9 _ - and begin with a letter"
        raise ValueError(message)
    return value


def dsn(value: str) -> str:
    """A connection string as PostgreSQL's own clients read it: a URL, or `name=value` pairs."""
    if not value:
        return value
    try:
        known = conninfo_to_dict(value)
    except ProgrammingError:
        known = {}
    if not known:
        message = (
            "is no PostgreSQL connection string; give it as postgresql://user@host:port/database"
        )
        raise ValueError(message)
    return value


def brokers(value: str) -> str:
    """Addresses of brokers, or none."""
    if value and not all(_BROKER.fullmatch(each.strip()) for each in value.split(",")):
        message = "must be host:port, several separated by commas"
        raise ValueError(message)
    return value


def crash_point(value: str) -> str:
    """A step at which a drill strikes, or none."""
    if value:
        crash_at(value, lambda _signal: None)
    return value
