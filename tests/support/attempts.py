"""What the ledger says of the requests of a test's own customers, and of every attempt at them."""

from typing import Any, Final

import psycopg

from tests.support.book_reading import ledger_number
from tests.support.books import Books
from tests.support.live import LiveStack

SENT: Final = "SELECT count(*) FROM ledger.meter_event WHERE customer = ANY(%s)"
NOT_WHOLE: Final = f"{SENT} AND state IN ('dead', 'ambiguous')"
DOUBTED: Final = f"{SENT} AND possibly_executed AND state <> 'recorded'"
USED_UP: Final = (
    "SELECT coalesce(sum(attempts_used), 0) FROM ledger.meter_event WHERE customer = ANY(%s)"
)
ATTEMPTS: Final = (
    "SELECT count(*) FROM ledger.attempt JOIN ledger.meter_event USING (meter_event_id)"
    " WHERE customer = ANY(%s)"
)
NOT_RECORDED: Final = f"{ATTEMPTS} AND outcome <> 'Recorded'"
UNANSWERED: Final = f"{ATTEMPTS} AND finished_at IS NULL"


def ask(stack: LiveStack, statement: str, books: Books, *values: object) -> int:
    """One number about the meter events of the test's own customers."""
    return ledger_number(stack, statement, customers(books), *values)


def look(stack: LiveStack, statement: str, books: Books, *values: object) -> list[tuple[Any, ...]]:
    """Rows about the meter events of the test's own customers."""
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        return ledger.execute(statement.encode(), (customers(books), *values)).fetchall()


def customers(books: Books) -> list[str]:
    """Who pays for the test's tenants."""
    return [f"cus_{tenant}" for tenant in sorted(books.tenants)]


def whole(books: Books) -> int:
    """Units that have to be at Stripe in the end."""
    return sum(units for _, units in books.windows.values())


def at_stripe(stack: LiveStack, books: Books) -> set[str]:
    """Identifiers of the test's meter events that Stripe has recorded, whatever it answered."""
    mine = set(customers(books))
    return {e["identifier"] for e in stack.stand_in.oracle() if e["customer"] in mine}
