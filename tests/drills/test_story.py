"""What goes wrong in every billing pipeline: Stripe is away, the network is cut, a worker dies.

Each drill counts what the fault has left waiting, to the window, takes the fault away, and finds
every unit at Stripe once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

import psycopg
import pytest

from tests.support import witness
from tests.support.attempts import SENT, UNANSWERED, ask, at_stripe, whole
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    pending,
    windows_pending,
    write,
)
from tests.support.live import LiveStack
from tests.support.proxy import proxied
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(420)]
METER_EVENTS: Final = "POST /v1/billing/meter_events"


def billing(name: str, windows: int, *, seed: int) -> Iterator[Use]:
    """Usage in so many billing windows, each of a customer of its own; some of it comes twice."""
    witness.seeded(name, seed)
    random = Random(seed)
    now = datetime.now(UTC)  # noqa: TID251 - the services of a drill live now
    start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    for window in range(windows):
        for number in range(random.randrange(2, 12)):
            yield Use(
                tenant=f"{name}-{window}",
                metric="api_calls",
                key=f"{name}-{window}-{number}",
                units=random.randrange(1, 500),
                occurred_at=start + timedelta(seconds=random.randrange(60)),
                fate="twice" if number == 0 else "once",
            )


@contextmanager
def halted(stack: LiveStack, why: str) -> Iterator[None]:
    """Nothing is published meanwhile: what is written becomes whole before any of it is sent."""
    with psycopg.connect(stack.facts["ledger_owner_dsn"], autocommit=True) as ledger:
        ledger.execute("INSERT INTO ledger.halt (kind, detail) VALUES ('drill', '{}')")
        witness.did("publishing is halted")
        try:
            yield
        finally:
            ledger.execute("SELECT ledger.lift_halt('drill', %s)", (why,))
            witness.did(f"publishing is not halted any more: {why}")


def write_whole(stack: LiveStack, uses: Iterator[Use], books: Books) -> None:
    """So that each window is one request: sent while it is written, it could become two."""
    with halted(stack, "all of it is in the ledger"):
        write(stack, uses, books)
        until(
            lambda: f"all of it in the ledger; {pending(stack, books)} of {whole(books)} units are",
            lambda: pending(stack, books) == whole(books),
            60,
        )


def await_pending(stack: LiveStack, books: Books, windows: int) -> None:
    """All usage is in the ledger, and so many windows wait there: the failed state."""

    def waiting() -> int:
        return windows_pending(stack, books)

    until(
        lambda: f"{windows} windows to wait; {waiting()} do, {pending(stack, books)} units",
        lambda: waiting() == windows and pending(stack, books) == whole(books),
        60,
    )
    witness.seen("windows pending", waiting())


def assert_recovered(stack: LiveStack, books: Books) -> None:
    await_settled(stack, books, 120)
    assert_exact(stack, books)
    assert windows_pending(stack, books) == 0


@pytest.mark.drill(
    name="stripe-outage",
    about="Stripe is away: 24 billing windows wait, and are sent when it is back",
)
def test_24_windows_wait_for_stripe(stack: LiveStack) -> None:
    books = Books()
    stack.stand_in.arm(kind="outage")
    stack.start_worker("outage")
    write(stack, billing("outage", 24, seed=24), books)
    await_pending(stack, books, 24)
    assert not at_stripe(stack, books)

    stack.stand_in.clear_faults()
    assert_recovered(stack, books)


@pytest.mark.drill(
    name="network-cut",
    about="The network to Stripe is cut with 6 requests on the way: 12 windows wait, 6 of them are "
    "at Stripe, and the sender cannot know it",
)
def test_12_windows_wait_behind_a_cut(stack: LiveStack) -> None:
    books = Books()
    with proxied(stack.facts["stripe_url"]) as network:
        stack.start_worker("cut", stripe_api_base=network.url, stripe_read_timeout_ms=5_000)
        before = stack.stand_in.request_counts().get(METER_EVENTS, 0)
        stack.stand_in.arm(kind="slow", count=6, delay_ms=3_000)
        write_whole(stack, billing("cut-a", 6, seed=12), books)
        until(
            "six requests at Stripe",
            lambda: stack.stand_in.request_counts().get(METER_EVENTS, 0) - before == 6,
            60,
        )
        network.cut()
        write_whole(stack, billing("cut-b", 6, seed=13), books)
        until("Stripe to have six", lambda: len(at_stripe(stack, books)) == 6, 30)
        until("the sender to give up", lambda: ask(stack, UNANSWERED, books) == 0, 60)
        await_pending(stack, books, 12)
        witness.seen("of them at Stripe, their answers cut off", len(at_stripe(stack, books)))

        network.mend()
        assert_recovered(stack, books)
        assert ask(stack, SENT, books) == len(at_stripe(stack, books)) == 12


@pytest.mark.drill(
    name="crash-after-pending",
    about="SIGKILL to the worker after 12 windows were written as pending and before one was sent",
)
def test_12_windows_are_pending_when_the_worker_dies(stack: LiveStack) -> None:
    books = Books()
    # So that the worker comes as far as writing them and no further.
    with halted(stack, "the worker is dead, and nobody is there to publish"):
        worker = stack.start_worker("crash")
        write(stack, billing("crash", 12, seed=14), books)
        await_pending(stack, books, 12)
        worker.kill()
        assert worker.process.returncode == -signal.SIGKILL
    assert not at_stripe(stack, books)
    await_pending(stack, books, 12)

    stack.start_worker("crash")
    assert_recovered(stack, books)
