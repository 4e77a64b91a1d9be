"""Named queries: `queries.sql` of a schema → name → text.

A file is a list of blocks:

    -- name: open_lanes
    -- Lanes with something to send, oldest deadline first.
    SELECT ...

The line after the name is the description; both are required, and a name may occur once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from schemas.errors import ContractMissingError

if TYPE_CHECKING:
    from schemas.migrations import SchemaName

_HEAD: Final = re.compile(r"^-- name:[ \t]*(\S*)[ \t]*$", re.MULTILINE)
_NAME: Final = re.compile(r"^[a-z][a-z0-9_]*$")


@dataclass(frozen=True, slots=True)
class Query:
    """One named statement."""

    #: The key it is asked for by.
    name: str
    #: One line: what it gives or does.
    description: str
    #: The statement with psycopg placeholders, without a trailing semicolon.
    sql: str

    @property
    def statement(self) -> bytes:
        """The statement in the form psycopg takes from a file (it refuses computed `str`)."""
        return self.sql.encode()


@cache
def load_queries(schema: SchemaName, file: str = "queries.sql") -> Mapping[str, Query]:
    """All named queries of a schema's file, by name.

    Raises:
        ContractMissingError: the file is missing, or a block has no name, no description or no
            statement.
    """
    path = files("schemas").joinpath(schema, file)
    if not path.is_file():
        raise ContractMissingError(f"schemas/{schema}/{file}: not found; install the package again")
    return MappingProxyType(
        parse(path.read_text(encoding="utf-8"), origin=f"schemas/{schema}/{file}")
    )


def parse(text: str, *, origin: str) -> dict[str, Query]:
    """Split a file's text into its queries.

    Args:
        text: the whole file; comment lines before the first block are free text.
        origin: how errors name the file.

    Raises:
        ContractMissingError: a block breaks a rule; the text names it.
    """
    parts = _HEAD.split(text)
    queries: dict[str, Query] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        query = _block(name, body, origin)
        if name in queries:
            raise ContractMissingError(f"{origin}: the name {name} occurs twice; rename one")
        queries[name] = query
    if not queries:
        raise ContractMissingError(f"{origin}: no `-- name:` line found; add one per query")
    return queries


def _block(name: str, body: str, origin: str) -> Query:
    if _NAME.match(name) is None:
        raise ContractMissingError(
            f"{origin}: {name!r} is no name; use lower-case letters, digits and _"
        )
    description, _, statement = body.lstrip("\n").partition("\n")
    if not description.startswith("-- ") or not description[3:].strip():
        raise ContractMissingError(
            f"{origin}: {name} has no description; add `-- what it does` below its name"
        )
    sql = statement.strip().removesuffix(";").rstrip()
    if not sql:
        raise ContractMissingError(f"{origin}: {name} has no statement; add it or remove the name")
    return Query(name=name, description=description[3:].strip(), sql=sql)
