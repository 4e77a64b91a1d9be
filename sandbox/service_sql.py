"""One SQL statement as the service would run it → its rows as text."""

from typing import Any

import psycopg


class StatementError(Exception):
    """The database refused the statement; the text is its answer."""


def run(dsn: str, statement: str) -> list[str]:
    """Runs the statement in a transaction of its own and renders what it gives.

    Args:
        dsn: the service's login; it may record usage and nothing else.
        statement: SQL.

    Raises:
        StatementError: with SQLSTATE, message, detail and hint.
    """
    try:
        with psycopg.connect(dsn) as connection:
            cursor = connection.execute(statement.encode())
            heads = [column.name for column in cursor.description or ()]
            rows = cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        said = [str(error).strip().splitlines()[0] if str(error).strip() else "no connection"]
        said += [text for text in (error.diag.message_detail, error.diag.message_hint) if text]
        raise StatementError(f"SQLSTATE {error.sqlstate or '-'}: " + "\n  ".join(said)) from None
    return _table(heads, rows) if heads else ["done"]


def _table(heads: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    cells = [heads, *([str(value) for value in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    return [
        "  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
