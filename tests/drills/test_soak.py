"""Faults by chance, for as long as one likes: afterwards everything is at Stripe once."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.drills.soak.evidence import kept_of_failure
from tests.drills.soak.plan import Plan, planned
from tests.drills.soak.service import Service
from tests.drills.soak.storm import Storm
from tests.support import witness
from tests.support.books import (
    Books,
    assert_exact,
    ledger_number,
    map_customers,
    scattered,
    settled,
    show_pending,
)
from tests.support.live import LiveStack
from tests.support.proxy import proxied
from tests.support.waiting import until

TENANTS: Final = 24
OPEN_DEAD: Final = (
    "SELECT parked_id, p.reason FROM ledger.parked p JOIN ledger.meter_event m"
    " USING (meter_event_id) WHERE p.state = 'open' AND m.state = 'dead'"
)
TOLD: Final = "SELECT coalesce(sum(error_count), 0) FROM ledger.error_report"


@pytest.fixture
def plan(pytestconfig: pytest.Config) -> Plan:
    seed, minutes = pytestconfig.getoption("drill_seed"), pytestconfig.getoption("drill_minutes")
    witness.seeded("soak", seed)
    return planned(seed, minutes)


@pytest.fixture
def evidence(pytestconfig: pytest.Config) -> Path:
    return Path(pytestconfig.getoption("drill_out")) / "soak-evidence"


@contextlib.contextmanager
def recording(stack: LiveStack, books: Books, plan: Plan) -> Iterator[Service]:
    """A service at work, which ends with the block."""
    uses = scattered("soak", plan.uses, tenants=TENANTS, seed=plan.seed)
    service = Service(stack, books, uses, plan.uses / plan.seconds)
    try:
        yield service
    finally:
        service.end()


def decide(stack: LiveStack, books: Books) -> Counter[str]:
    """What Stripe refused for good is tried again by a person; how much, by reason."""
    redriven: Counter[str] = Counter()

    def taken_back() -> int:
        return sum(1 for event in stack.stand_in.oracle() if event["refused"])

    until(
        lambda: f"{taken_back()} errors to be told; {ledger_number(stack, TOLD)} are",
        lambda: ledger_number(stack, TOLD) == taken_back(),
        120,
    )
    with psycopg.connect(stack.facts["ledger_owner_dsn"], autocommit=True) as ledger:
        for item, reason in ledger.execute(OPEN_DEAD).fetchall():
            ledger.execute("SELECT ledger.redrive(%s, 'drill: the storm is over')", (item,))
            redriven[reason] += 1
    return redriven


def tell(plan: Plan, storm: Storm, service: Service, books: Books) -> None:
    """What it was, for the report."""
    faults = ", ".join(f"{what} {n}" for what, n in sorted(storm.done.items()))
    crew = storm.crew
    witness.proved(f"seed {plan.seed}, {plan.minutes:g} minutes; again: `{plan.replay}`")
    witness.proved(f"{len(books.uses)} events, {storm.kills} kills, {storm.done.total()} faults")
    witness.proved(f"faults: {faults}")
    witness.proved(
        f"{service.broken_off} calls of the service broke off and were made again; "
        f"{crew.ended_themselves} workers ended by themselves and were started again"
    )


@pytest.mark.long
@pytest.mark.drill(
    name="soak",
    alone=True,
    about="Faults by chance from a seed, for half an hour or --minutes: processes are killed, the "
    "network is cut, Stripe answers badly, disks are lost, transactions stay open",
)
@pytest.mark.timeout(0)  # everything in it has a deadline of its own, after its length
def test_soak(own_stack: LiveStack, plan: Plan, evidence: Path) -> None:
    stack, books = own_stack, Books()
    books.tenants |= {f"soak-{number}" for number in range(TENANTS)}
    map_customers(stack, books)
    deadline_s = 300 + plan.seconds / 2
    with (
        proxied(stack.facts["stripe_url"]) as network,
        kept_of_failure(stack, books, evidence),
        recording(stack, books, plan) as service,
    ):
        storm = Storm(stack, plan, service, network)
        storm.run()
        with service.noting:
            show_pending(stack, books)

        storm.end()
        service.finish(deadline_s)
        map_customers(stack, books)
        tell(plan, storm, service, books)

        def still() -> bool:
            storm.keep()
            return settled(stack, books)

        until("the backlog to be settled", still, deadline_s)
        redriven = decide(stack, books)
        until("what was redriven to be settled", still, 120)
        assert_exact(stack, books, redriven=redriven["refused"], exhausted=redriven["exhausted"])
        audit = stack.tailrace("audit")
        assert audit.stdout.rstrip().endswith("lost 0 · double 0"), audit.stdout + audit.stderr
        assert len(books.uses) >= plan.events_min
        assert storm.kills >= plan.kills_min
