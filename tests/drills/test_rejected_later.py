"""Stripe takes back what it accepted, and names only some of it: all of it is accounted for."""

from typing import Final

import psycopg
import pytest

from tests.support import witness
from tests.support.book_reading import ledger_number
from tests.support.books import Books, assert_exact, pending, scattered, write
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
EVENTS: Final = 400
REJECTED: Final = 25
SAMPLES: Final = 2

OPEN: Final = (
    "SELECT p.parked_id FROM ledger.parked p JOIN ledger.meter_event m USING (meter_event_id)"
    " WHERE m.customer = ANY(%s) AND p.state = 'open' AND m.state = 'dead'"
    " AND m.dead_kind = 'refused' AND m.rejected_at IS NOT NULL"
)
UNITS: Final = (
    "SELECT coalesce(sum(units), 0) FROM ledger.meter_event WHERE customer = ANY(%s) AND state = %s"
)
IN_DOUBT: Final = (
    "SELECT count(*) FROM ledger.doubt d JOIN ledger.meter_event m USING (customer, event_name,"
    " window_start, window_end) WHERE m.identifier = %s AND d.settled_at IS NULL"
)
NAMED: Final = "SELECT count(*) FROM ledger.rejection WHERE identifier = %s"
TOLD: Final = "SELECT coalesce(sum(error_count), 0) FROM ledger.error_report"


@pytest.mark.drill(name="taken-back-later")
def test_more_errors_than_samples(own_stack: LiveStack) -> None:
    stack = own_stack  # errors that nobody named stay a finding of every later audit
    books = Books()
    stand_in = stack.stand_in
    stand_in.change_settings(samples_max=SAMPLES)
    stand_in.arm(kind="reject", count=REJECTED, code="archived_meter")
    stack.start_worker("rejected", publish_rate_per_s=200, report_sweep_s=2)
    write(stack, scattered("rejected", EVENTS, seed=51), books)
    customers = [f"cus_{tenant}" for tenant in sorted(books.tenants)]
    whole = sum(units for _, units in books.windows.values())

    with psycopg.connect(stack.facts["ledger_owner_dsn"], autocommit=True) as ledger:

        def number(statement: str, *more: object) -> int:
            return ledger_number(stack, statement, customers, *more)

        def told() -> int:
            return ledger_number(stack, TOLD)

        until(lambda: f"all errors to be told; {told()} are", lambda: told() == REJECTED, 150)
        until(
            lambda: f"nothing to wait; {pending(stack, books)} units do",
            lambda: pending(stack, books) == 0,
            60,
        )
        assert number(UNITS, "recorded") + number(UNITS, "dead") == whole

        refused = [e for e in stand_in.oracle() if e["customer"] in customers and e["refused"]]
        items = [item for (item,) in ledger.execute(OPEN.encode(), (customers,)).fetchall()]
        assert len(refused) == REJECTED
        witness.seen("accepted meter events taken back by Stripe", len(refused))
        assert 0 < len(items) < REJECTED

        unnamed = [e for e in refused if ledger_number(stack, NAMED, e["identifier"]) == 0]
        assert len(unnamed) == REJECTED - len(items)
        for event in unnamed:
            doubts = ledger_number(stack, IN_DOUBT, event["identifier"])
            assert doubts > 0, f"nobody will look at {event}"

        for item in items:
            ledger.execute("SELECT ledger.redrive(%s, 'the meter is active again')", (item,))
        until("everything to be recorded", lambda: number(UNITS, "recorded") == whole, 90)
        counted = sum(
            int(e["value"]) * e["counted"]
            for e in stand_in.oracle()
            if e["customer"] in customers and not e["refused"]
        )
        assert counted == whole - sum(int(e["value"]) for e in unnamed)
    assert_exact(stack, books, redriven=len(items))
    stand_in.change_settings(samples_max=10)
