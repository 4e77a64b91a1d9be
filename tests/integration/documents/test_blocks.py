"""SQL and Python of the pages, run as they stand, by logins with the roles that pages tell of."""

from collections.abc import Callable
from typing import Any, Final

import psycopg
import pytest

from schemas.migrations import SchemaName
from tests.support.documents import TRIED_ELSEWHERE, Block, pages
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres
READERS: Final[dict[tuple[str, SchemaName], tuple[str, ...]]] = {
    ("README.md", "outbox"): ("metering_writer",),
    ("README.md", "ledger"): ("ledger_reader",),
    ("docs/quickstart-upstream.md", "outbox"): ("metering_writer", "metering_corrector"),
    ("docs/quickstart-finance.md", "ledger"): ("ledger_reader",),
}
"""Whose login a page's statements are typed with. Everything else is an administrator's."""
PAGES: Final = [
    each
    for each in pages()
    if each.name not in TRIED_ELSEWHERE and any(each.blocks("sql", "python"))
]


def schema_of(block: Block) -> SchemaName:
    """Which database a block is for: the one that it names."""
    return "ledger" if "ledger." in block.text or "-- in the ledger" in block.text else "outbox"


def tried(connection: psycopg.Connection, block: Block) -> None:
    """Runs a block; it fails by its place."""
    try:
        if block.language == "python":
            names: dict[str, Any] = {"connection": connection}
            exec(compile(block.text, block.place, "exec"), names)  # noqa: S102 - a page's own code
            assert names["status"] in {"recorded", "duplicate"}, block.place
        else:
            connection.execute(block.text.encode())
    except psycopg.Error as error:
        error.add_note(f"in {block.place}")
        raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("schema", ["outbox", "ledger"])
def test_a_page_can_be_followed_from_its_first_block_to_its_last(
    page: Any, schema: SchemaName, fresh_database: Callable[..., Database]
) -> None:
    blocks = [block for block in page.blocks("sql", "python") if schema_of(block) == schema]
    if not blocks:
        return
    database = fresh_database(schema)
    roles = READERS.get((page.name, schema))
    with database.connect(database.login(*roles) if roles else "postgres", autocommit=False) as own:
        for block in blocks:
            tried(own, block)
        own.rollback()


def test_every_login_is_of_a_page() -> None:
    named = {
        (page.name, schema_of(block)) for page in PAGES for block in page.blocks("sql", "python")
    }
    assert set(READERS) <= named
