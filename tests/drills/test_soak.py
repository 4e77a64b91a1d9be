"""Faults by chance, for as long as one likes: afterwards everything is at Stripe once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.drills.soak.evidence import kept_of_failure
from tests.drills.soak.people import People
from tests.drills.soak.plan import Plan, planned
from tests.drills.soak.service import Service
from tests.drills.soak.storm import Storm
from tests.support import witness
from tests.support.books import (
    Books,
    assert_exact,
    map_customers,
    pending,
    scattered,
    settled,
    show_pending,
)
from tests.support.live import LiveStack
from tests.support.proxy import proxied
from tests.support.waiting import until

TENANTS: Final = 24


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

        def is_kept_away() -> bool:
            with service.noting:
                return pending(stack, books) > 0

        until("usage that the outage keeps from Stripe", is_kept_away, 120)
        with service.noting:
            show_pending(stack, books)
        storm.end()
        service.finish(deadline_s)
        map_customers(stack, books)
        tell(plan, storm, service, books)
        people = People(stack)

        def is_over() -> bool:
            storm.keep()
            people.decide()
            return settled(stack, books) and people.is_done

        until("the backlog to be settled and everything dead decided", is_over, deadline_s)
        dead = people.decided()
        witness.proved(f"dead letters, all decided: {dict(dead)}, unread {people.sent_again}")
        assert_exact(
            stack,
            books,
            doubted=dead["ambiguous"],
            redriven=dead["refused"],
            exhausted=dead["exhausted"],
        )
        audit = stack.tailrace("audit")
        assert audit.stdout.rstrip().endswith("lost 0 · double 0"), audit.stdout + audit.stderr
        assert len(books.uses) >= plan.events_min
        assert storm.kills >= plan.kills_min
