from __future__ import annotations

import pytest

from schemas.errors import ContractMissingError
from schemas.queries import Query, load_queries, parse

TWO = """Free text.
-- name: first
-- What it gives.
SELECT 1;

-- name: second
-- Another, with a comment inside.
SELECT 2 -- two
FROM x
"""


def test_blocks_become_queries_by_name() -> None:
    assert parse(TWO, origin="f.sql") == {
        "first": Query("first", "What it gives.", "SELECT 1"),
        "second": Query("second", "Another, with a comment inside.", "SELECT 2 -- two\nFROM x"),
    }


def test_a_statement_is_bytes_for_the_driver() -> None:
    assert parse(TWO, origin="f.sql")["first"].statement == b"SELECT 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.sql: no `-- name:` line found"),
        ("SELECT 1", "f.sql: no `-- name:` line found"),
        ("-- name: \n-- d\nSELECT 1", "f.sql: '' is no name"),
        ("-- name: Bad\n-- d\nSELECT 1", "f.sql: 'Bad' is no name"),
        ("-- name: q\nSELECT 1", "f.sql: q has no description"),
        ("-- name: q\n-- \nSELECT 1", "f.sql: q has no description"),
        ("-- name: q\n-- d\n", "f.sql: q has no statement"),
        ("-- name: q\n-- d\n;", "f.sql: q has no statement"),
        (TWO + "-- name: first\n-- d\nSELECT 3", "f.sql: the name first occurs twice"),
    ],
)
def test_a_broken_block_is_named(text: str, message: str) -> None:
    with pytest.raises(ContractMissingError) as refused:
        parse(text, origin="f.sql")
    assert str(refused.value).startswith(message)
    assert ";" in str(refused.value), "what to do stands behind the semicolon"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ContractMissingError, match=r"schemas/outbox/none\.sql: not found"):
        load_queries("outbox", "none.sql")
