"""Parts of a page that are read beside each other: a broken one says so and spoils no other."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from streams.cli.boundary import explain
from streams.cli.database import Connection, connected, rows
from streams.cli.stack import Stack

STATEMENT_MS: Final = 15_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be read, and what to type."""

    what: str
    fix: str


def attempt(read: Callable[[], T]) -> T | Unread:
    """What `read` gives, or why it gives nothing."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - whatever it was, the rest of the page stands
        shown = explain(error)
        return Unread(shown.what, shown.fix)


def beside(**reads: Callable[[], Any]) -> dict[str, Any]:
    """All of them at the same time, each its value or `Unread`; blocks as long as the slowest."""
    with ThreadPoolExecutor(len(reads)) as pool:
        begun = {name: pool.submit(attempt, read) for name, read in reads.items()}
        return {name: future.result() for name, future in begun.items()}


@contextmanager
def ledger_of(stack: Stack) -> Iterator[Connection]:
    """The ledger, for one page: what takes longer than a person waits is given up.

    Raises:
        CommandError: it is not set or does not answer.
    """
    dsn = stack.need("ledger_dsn").ledger_dsn
    with connected(dsn, "the ledger", STATEMENT_MS) as ledger:
        yield ledger


def screen_rows(
    connection: Connection, name: str, values: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """Runs a statement that only the console asks.

    Raises:
        psycopg.Error: the ledger refused it or went away.
    """
    return rows(connection, name, values, "streams.console")
