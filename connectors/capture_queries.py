"""The named statements of capture, read from `queries.sql` beside this module."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from schemas.queries import Query, parse


@cache
def queries() -> Mapping[str, Query]:
    """All statements of capture by name."""
    text = files("connectors").joinpath("queries.sql").read_text(encoding="utf-8")
    return parse(text, origin="connectors/queries.sql")


def rows(
    connection: Connection[Any], name: str, values: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """Run a named statement and give its rows, columns by name.

    Raises:
        psycopg.Error: the database refused it or is away.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(queries()[name].statement, values)
        return cursor.fetchall() if cursor.description else []
