"""A record ends every worker that reads it: it is found, and set apart, and the others flow on.

After a few deaths it is handed over alone and unread, as a dead letter. Where even that kills, its
partition is held with the record named, until a person decides; no worker dies of it any more.
"""

import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import psycopg
import pytest

from streams.engine.poison import HOLD_FROM_TRY
from tests.drills.asked import assert_not_judged, audit, identities
from tests.support import witness
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    ledger_number,
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
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
EVENTS: Final = 150
DEATHS_MAX: Final = 8
PARKED: Final = "SELECT count(*) FROM ledger.parked WHERE detail::text LIKE '%%ended two workers%%'"


def planted(stack: LiveStack, mark: str, seed: int) -> tuple[str, int, Books, Books]:
    """Usage with a killer before it: its tenant and partition, the books behind and beside it."""
    # Nothing else may carry the mark.
    uses = list(scattered(f"beside-{seed}", EVENTS, tenants=24, seed=seed))
    partition = home(stack, uses[0].tenant)
    tenant = next(f"killer-{n}" for n in range(1_000) if home(stack, f"killer-{n}") == partition)
    at = uses[0].occurred_at - timedelta(minutes=1)
    with psycopg.connect(stack.facts["writer_dsn"]) as service:
        record(service, Use(tenant, "api_calls", mark, 7, at))
    witness.did(f"the service recorded a killer on partition {partition}")
    behind, beside = Books(), Books()
    write(stack, (use for use in uses if home(stack, use.tenant) == partition), behind)
    write(stack, (use for use in uses if home(stack, use.tenant) != partition), beside)
    return tenant, partition, behind, beside


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
        assert worker.await_death() == -signal.SIGKILL, worker.log.read_text()[-3_000:]
    pytest.fail(f"it went on killing: {DEATHS_MAX} workers")


@pytest.mark.drill(
    name="killer-record", about="a record kills every worker that decodes it: dead-lettered unread"
)
def test_a_record_that_kills_when_it_is_read_is_parked_unread(own_stack: LiveStack) -> None:
    stack = own_stack
    tenant, partition, behind, beside = planted(stack, WHEN_READ, 96)
    show_pending(stack, behind)
    deaths = deaths_until(
        stack, "the usage behind it to be settled", lambda: settled(stack, behind)
    )
    witness.proved(f"{deaths} workers died of the record on partition {partition}")
    assert deaths > 1, "nothing was planted"
    await_settled(stack, beside)
    assert_exact(stack, behind)
    assert_exact(stack, beside)
    assert ledger_number(stack, PARKED) == 1
    assert held_records(stack) == []
    found = audit(stack)
    assert (found["lost"], identities(found, "lost")) == (1, {(tenant, WHEN_READ)})


@pytest.mark.drill(
    name="killer-record-held", about="a record kills whoever is handed it: its partition is held"
)
def test_a_record_that_kills_even_unread_holds_its_partition_alone(own_stack: LiveStack) -> None:
    stack = own_stack
    tenant, partition, behind, beside = planted(stack, UNREAD, 97)
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
    assert (found["lost"], identities(found, "lost")) == (1, {(tenant, UNREAD)})
