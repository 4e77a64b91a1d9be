"""A column of the outbox is renamed: calls fail by name, or capture stops; nothing is lost.

Where only the table changes, the service's own transactions fail and record nothing. Where the
function follows, usage is recorded that no connector can read: it waits in the registry, and after
the way back the repair that the guard names sends it.
"""

from typing import Final

import psycopg
import pytest

from sandbox.paths import Paths
from tests.support import witness
from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    record,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 80
REASON: Final = ("--yes", "--reason", "drill: a column was renamed")
RECORDER: Final = (
    "SELECT pg_get_functiondef("
    "'metering.record_identity(text, metering.usage_key, jsonb, text)'::regprocedure)"
)
COLUMN: Final = "received_at, payload, traceparent"
RENAMED: Final = "received_at, body, traceparent"


def rename(stack: LiveStack, old: str, new: str) -> None:
    with psycopg.connect(stack.facts["postgres_dsn"]) as owner:
        owner.execute(f"ALTER TABLE metering.usage_outbox RENAME COLUMN {old} TO {new}".encode())
    witness.did(f"column {old} of the outbox is now {new}")


def rewrite(stack: LiveStack, old: str, new: str) -> None:
    """What the function writes."""
    with psycopg.connect(stack.facts["postgres_dsn"]) as owner:
        row = owner.execute(RECORDER).fetchone()
        assert row is not None
        assert old in row[0]
        owner.execute(row[0].replace(old, new).encode())
    witness.did("the function that records follows")


def refusal(stack: LiveStack) -> str:
    """What the guard says, to whoever looks first: this drill, or the watch of the stack."""
    guard = stack.tailrace("source", "guard")
    return guard.stdout + Paths(stack.directory).progress.read_text(encoding="utf-8")


@pytest.mark.drill(name="poison-column-renamed")
def test_a_renamed_column_loses_nothing(own_stack: LiveStack) -> None:
    stack = own_stack
    books, later = Books(), Books()
    stack.start_worker("renamed")
    write(stack, scattered("renamed", EVENTS, tenants=4, seed=161), books)
    await_settled(stack, books)

    rename(stack, "payload", "body")
    (use,) = scattered("refused", 1, seed=162)
    with (
        psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service,
        pytest.raises(psycopg.errors.UndefinedColumn, match="payload"),
    ):
        record(service, use)
    rewrite(stack, COLUMN, RENAMED)
    write(stack, scattered("later", EVENTS, tenants=4, seed=163), later)

    until("capture to be refused", lambda: "unroutable" in refusal(stack), 120)
    show_pending(stack, later)
    said = refusal(stack)
    assert "Unable to find payload field" in said
    assert "give the outbox its columns back" in said
    assert "order it even if healthy" in said

    rename(stack, "body", "payload")
    rewrite(stack, RENAMED, COLUMN)
    healed = stack.tailrace("connector", "heal")
    assert healed.returncode != 0, "it met a row that it can read"
    repaired = stack.tailrace("connector", "repair", "--even-if-healthy", *REASON)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    await_settled(stack, later)
    for each in (books, later):
        assert_exact(stack, each)
    audit = stack.tailrace("audit")
    assert audit.stdout.rstrip().endswith("lost 0 · double 0"), audit.stdout + audit.stderr
