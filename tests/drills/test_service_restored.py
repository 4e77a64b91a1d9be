"""The service's database is restored from an hour-old backup while its usage is billed already.

The registry has forgotten what it recorded since, and the slot is gone with the database. What the
service records again is known downstream and counts nothing; what nobody records again is named, as
verdicts without a record; what is recorded from then on flows.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest

from tests.support import witness
from tests.support.backup import back_up, restore
from tests.support.book_reading import read
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    record,
    scattered,
    show_pending,
    write,
)
from tests.support.shifted import ShiftedStack, shifted_stack

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
EVENTS: Final = 60
A_WHILE: Final = timedelta(minutes=5)
"""After it, every minute so far is over."""
REASON: Final = ("--yes", "--reason", "drill: the service's database was restored")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[ShiftedStack]:
    with shifted_stack(tmp_path / "stack") as own:
        yield own


def use_some(stack: ShiftedStack, name: str, seed: int) -> tuple[list[Use], Books]:
    """Usage in minutes of its own, which are over then."""
    books = Books()
    uses = list(scattered(name, EVENTS, tenants=3, seed=seed, now=stack.now))
    write(stack, uses, books)
    await_settled(stack, books)
    stack.move(A_WHILE)
    return uses, books


def record_again(stack: ShiftedStack, uses: list[Use]) -> None:
    """As a service does from its own books: the same keys, the same content."""
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for use in uses:
            record(service, use)
    witness.did(f"the service recorded {len(uses)} uses again")
    stack.move(A_WHILE)


def audit(stack: ShiftedStack) -> dict[str, Any]:
    ran = stack.tailrace("audit", "--json")
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    return msgspec.json.decode(ran.stdout, type=dict[str, Any])


def assert_refused(stack: ShiftedStack) -> None:
    """The guard sees that rows are not held, and names the way out."""
    guard = stack.tailrace("source", "guard")
    assert guard.returncode == 1, guard.stdout
    assert "slot-missing" in guard.stdout
    assert "run the repair (`tailrace connector repair`)" in guard.stdout


def identities(books: Books) -> int:
    """Everything an audit counts: usage, and contents that contradict it."""
    return len(books.uses) + books.review["conflict"]


@pytest.mark.drill(name="service-restored")
def test_a_restored_registry_counts_nothing_twice_and_names_what_it_has_lost(
    stack: ShiftedStack, tmp_path: Path
) -> None:
    worker = stack.start_worker("restored")
    _, before = use_some(stack, "before", 141)
    back_up(stack.facts["postgres_dsn"], tmp_path / "backup")
    stack.move(timedelta(hours=1))
    again, repeated = use_some(stack, "again", 142)
    gone, forgotten = use_some(stack, "gone", 143)
    proven = audit(stack)
    assert proven["ok"], proven["findings"]
    assert proven["registry"]["sealed_now"] > 0
    sent = len(stack.stand_in.oracle())

    restore(stack.facts["postgres_dsn"], tmp_path / "backup")
    lost = len(repeated.uses) + len(forgotten.uses)
    lost -= len(read(stack, repeated.tenants | forgotten.tenants).keys)
    witness.seen("identities that the registry has forgotten", lost)
    assert lost == len(repeated.uses) + len(forgotten.uses)
    assert_refused(stack)
    fresh = Books()
    write(stack, scattered("fresh", EVENTS, tenants=3, seed=144, now=stack.now), fresh)
    record_again(stack, again)
    show_pending(stack, fresh)

    repaired = stack.tailrace("connector", "repair", *REASON)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    await_settled(stack, fresh)
    found = audit(stack)
    assert (found["lost"], found["double"]) == (0, len(forgotten.uses)), found["findings"]
    assert found["registry"]["conflicts_forgotten"] == forgotten.review["conflict"]
    assert found["registry"]["recorded_again"] == identities(repeated)
    named = [f["text"] for f in found["findings"] if f["double"]]
    assert all("record again what it has lost, under the same keys" in text for text in named)

    record_again(stack, gone)
    found = audit(stack)
    assert (found["lost"], found["double"]) == (0, 0), found["findings"]
    assert found["registry"]["recorded_again"] == identities(repeated) + identities(forgotten)
    # What is left tells of the restore itself: canaries that were forgotten, seals that were.
    assert {finding["kind"] for finding in found["findings"]} <= {"phantom", "seal"}
    for books in (before, repeated, forgotten, fresh):
        assert_exact(stack, books)
    mine = {f"cus_{tenant}" for tenant in fresh.tenants}
    others = [e for e in stack.stand_in.oracle() if e["customer"] not in mine]
    assert len(others) == sent, "nothing of it was sent again"
    assert worker.alive
