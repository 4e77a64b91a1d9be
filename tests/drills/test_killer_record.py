"""A record ends every worker that reads it: it is found, and set apart, and the others flow on.

After a few deaths it is handed over alone and unread, as a dead letter; so is one that was merely
in hand whenever something else ended the worker. Both are owed, and sent again once workers live.
Where even parking kills, the partition is held with the record named, until a person decides; no
worker dies of it any more.
"""

import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import psycopg
import pytest

from streams.crash_points import STEPS
from streams.engine.poison import HOLD_FROM_TRY, SINGLE_FROM_START, SUSPECT_FROM_TRY
from tests.drills.asked import assert_not_judged, assert_nothing_lost, audit, identities
from tests.support import witness
from tests.support.book_reading import ledger_number
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    map_customers,
    record,
    scattered,
    settled,
    show_pending,
    write,
)
from tests.support.held import held_records, home
from tests.support.killer_worker import UNREAD, WHEN_READ
from tests.support.live import LiveStack, LiveWorker
from tests.support.struck import IMPATIENT
from tests.support.unread import send_unread_again
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
EVENTS: Final = 150
DEATHS_MAX: Final = 8
PARKED_UNREAD: Final = "SELECT count(*) FROM ledger.parked WHERE reason = 'unread'"


def planted(stack: LiveStack, mark: str, seed: int) -> tuple[Use, int, Books, Books]:
    """Usage with a killer before it: itself, its partition, the books behind and beside it."""
    # Nothing else may carry the mark.
    uses = list(scattered(f"beside-{seed}", EVENTS, tenants=24, seed=seed))
    partition = home(stack, uses[0].tenant)
    tenant = next(f"killer-{n}" for n in range(1_000) if home(stack, f"killer-{n}") == partition)
    at = uses[0].occurred_at - timedelta(minutes=1)
    killer = Use(tenant, "api_calls", mark, 7, at)
    with psycopg.connect(stack.facts["writer_dsn"]) as service:
        record(service, killer)
    witness.did(f"the service recorded a killer on partition {partition}")
    behind, beside = Books(), Books()
    write(stack, (use for use in uses if home(stack, use.tenant) == partition), behind)
    write(stack, (use for use in uses if home(stack, use.tenant) != partition), beside)
    return killer, partition, behind, beside


def outlives(worker: LiveWorker, what: str, over: Callable[[], bool]) -> bool:
    """Whether a worker lives until the end."""
    until(what, lambda: not worker.alive or over(), 60)
    return worker.alive


def deaths_until(stack: LiveStack, what: str, over: Callable[[], bool]) -> int:
    """Starts a worker again whenever the record has ended it; how often that was."""
    for deaths in range(DEATHS_MAX + 1):
        worker = stack.start_worker(
            "victim", module="tests.support.killer_worker", **IMPATIENT, catalogue_refresh_s=2
        )
        if outlives(worker, what, over):
            return deaths
        assert worker.await_death() == -signal.SIGKILL, worker.own_log()[-3_000:].decode(
            errors="replace"
        )
    pytest.fail(f"it went on killing: {DEATHS_MAX} workers")


@pytest.mark.drill(
    name="killer-record",
    about="a record kills every worker that decodes it: dead-lettered unread, and sent again later",
)
def test_a_record_that_kills_when_it_is_read_is_parked_unread(own_stack: LiveStack) -> None:
    stack = own_stack
    killer, partition, behind, beside = planted(stack, WHEN_READ, 96)
    show_pending(stack, behind)
    deaths = deaths_until(
        stack, "the usage behind it to be settled", lambda: settled(stack, behind)
    )
    witness.proved(f"{deaths} workers died of the record on partition {partition}")
    assert deaths > 1, "nothing was planted"
    await_settled(stack, beside)
    assert_exact(stack, behind)
    assert_exact(stack, beside)
    assert ledger_number(stack, PARKED_UNREAD) == 1
    assert held_records(stack) == []
    found = audit(stack)
    assert (found["lost"], identities(found, "lost")) == (1, {(killer.tenant, WHEN_READ)})

    # Nobody has judged it, so it is owed: workers that it does not end count it like any other.
    stack.stop_workers()
    stack.start_worker("mended", **IMPATIENT, catalogue_refresh_s=2)
    behind.note(killer)
    map_customers(stack, behind)
    assert send_unread_again(stack) == 1
    await_settled(stack, behind)
    assert_exact(stack, behind)
    assert_exact(stack, beside)
    assert_nothing_lost(stack)


@pytest.mark.drill(
    name="killed-by-chance",
    about="workers are killed again and again with the same record in hand, which is innocent",
)
def test_a_record_that_is_blamed_for_other_deaths_is_sent_again_and_billed_once(
    own_stack: LiveStack,
) -> None:
    stack, before, books = own_stack, Books(), Books()
    # The first canaries are through, of every partition: else one of those might be blamed.
    worker = stack.start_worker("victim", **IMPATIENT)
    write(stack, scattered("chance-before", EVENTS // 10, tenants=1, seed=99), before)
    await_settled(stack, before)
    assert_nothing_lost(stack)
    worker.stop()
    write(stack, scattered("chance", EVENTS, tenants=1, seed=98), books)
    # Nothing is settled before the last: first with many in hand, and then with this one alone.
    deaths = SINGLE_FROM_START - 1 + SUSPECT_FROM_TRY - 1
    for death in range(deaths):
        step = STEPS[death % STEPS.index("packed_produced")]
        worker = stack.start_worker("victim", crash_at=f"{step}:1", **IMPATIENT)
        assert worker.await_death() == -signal.SIGKILL, worker.own_log()[-3_000:].decode(
            errors="replace"
        )
    show_pending(stack, books)
    stack.start_worker("victim", **IMPATIENT)
    until("one to be parked unread", lambda: ledger_number(stack, PARKED_UNREAD) == 1, 60)
    found = audit(stack)
    assert (found["lost"], len(identities(found, "lost"))) == (1, 1)
    witness.proved(f"{deaths} workers were killed with it in hand: it was parked unread, and named")
    assert send_unread_again(stack) == 1
    await_settled(stack, books)
    assert_nothing_lost(stack)
    assert_exact(stack, before)
    assert_exact(stack, books)


@pytest.mark.drill(
    name="killer-record-held", about="a record kills whoever is handed it: its partition is held"
)
def test_a_record_that_kills_even_unread_holds_its_partition_alone(own_stack: LiveStack) -> None:
    stack = own_stack
    killer, partition, behind, beside = planted(stack, UNREAD, 97)
    deaths = deaths_until(stack, "its partition to be held", lambda: len(held_records(stack)) == 1)
    witness.proved(f"{deaths} workers died of the record on partition {partition}")
    assert deaths > 1, "nothing was planted"
    await_settled(stack, beside)
    assert show_pending(stack, behind) > 0
    (held,) = held_records(stack)
    assert (held["partition"], held["state"]) == (partition, "held")
    # The others had it in a chunk of many, and nobody knew yet which record it was.
    alone = HOLD_FROM_TRY - 1
    assert f"the record at offset {held['offset']} ended {alone} workers" in held["reason"]
    assert alone <= deaths
    # The stack does not list workers that were started beside it, so an audit waits for all.
    assert_not_judged(stack)

    # Workers in which it kills no more, and who therefore would count it: the decision is another.
    stack.stop_workers()
    stack.start_worker("mended", **IMPATIENT, catalogue_refresh_s=2)
    until("it to be held there too", lambda: held_records(stack)[0]["worker"] != held["worker"], 60)
    place = (str(partition), str(held["offset"]))
    skipped = stack.tailrace("held", "skip", *place, "--yes", "--reason", "drill: it kills")
    assert skipped.returncode == 0, skipped.stdout + skipped.stderr
    await_settled(stack, behind)
    assert_exact(stack, behind)
    assert_exact(stack, beside)
    until("the record to be a dead letter", lambda: held_records(stack)[0]["state"] == "done", 30)
    found = audit(stack)
    assert (found["lost"], identities(found, "lost")) == (1, {(killer.tenant, UNREAD)})
