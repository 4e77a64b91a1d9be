"""The normal run, whole: 1,180 billing windows, 8,420 usage events, and everything that goes on.

Duplicates, conflicts, roll-backs and late events come on top. At the end completeness is 100 %,
duplicates are 0 %, nothing is pending, and registry, ledger and Stripe agree per tenant, metric and
window.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random

import psycopg
import pytest

from tests.support import witness
from tests.support.books import (
    WINDOW_S,
    Books,
    Use,
    assert_exact,
    await_settled,
    judge,
    map_customers,
    pending,
    record,
    show_pending,
    windows_pending,
)
from tests.support.live import LiveStack

pytestmark = [pytest.mark.drill, pytest.mark.timeout(420)]

WINDOWS, EVENTS = 1_180, 8_420
TENANTS = 40
DUPLICATES, CONFLICTS, ROLLBACKS, LATE = 420, 30, 120, 60
IN_ONE_TRANSACTION = 20
"""Of the service; what it rolls back of one is a part of it."""


def windows(now: datetime) -> list[tuple[str, str, datetime]]:
    """1,180 windows that are over: tenant, metric, start."""
    found: list[tuple[str, str, datetime]] = []
    for number in range(WINDOWS):
        tenant = f"run-{number % TENANTS}"
        metric = ("api_calls", "api_calls", "storage_gb", "exports")[(number // TENANTS) % 4]
        length = timedelta(seconds=WINDOW_S[metric])
        back = 2 + number // TENANTS // 4 if metric != "api_calls" else 130 + number // TENANTS
        whole = int(now.timestamp()) // WINDOW_S[metric] * WINDOW_S[metric]
        found.append((tenant, metric, datetime.fromtimestamp(whole, UTC) - back * length))
    return found


def story(now: datetime) -> Iterator[Use]:
    witness.seeded("run", WINDOWS)
    random = Random(WINDOWS)
    chosen = windows(now)
    # One event for each window, the rest wherever chance puts them.
    places = [*chosen, *random.choices(chosen, k=EVENTS - WINDOWS)]
    random.shuffle(places)
    kinds = ["twice"] * DUPLICATES + ["conflict"] * CONFLICTS
    kinds += ["once"] * (EVENTS - len(kinds))
    random.shuffle(kinds)
    for number, ((tenant, metric, start), kind) in enumerate(zip(places, kinds, strict=True)):
        inside = timedelta(seconds=random.randrange(WINDOW_S[metric]), microseconds=number % 10**6)
        at = min(start + inside, start + timedelta(seconds=WINDOW_S[metric], microseconds=-1))
        units = random.randrange(1, 500)
        yield Use(tenant, metric, f"run-{number}", units, at, kind)  # type: ignore[arg-type]
    for number in range(ROLLBACKS):
        yield Use(f"run-{number % TENANTS}", "exports", f"undone-{number}", 7, now, "rollback")
    for number in range(LATE):
        at = now - timedelta(hours=24, minutes=5 + number)
        yield Use(f"run-{number % TENANTS}", "api_calls", f"late-{number}", 9, at, "late")


@pytest.mark.drill(
    name="normal-run",
    about="No fault: 8,420 events in 1,180 billing windows, with copies, conflicts, roll-backs and "
    "late events on top, are complete, counted once and reconciled against Stripe",
)
def test_the_normal_run_is_complete_counted_once_and_reconciled(stack: LiveStack) -> None:
    books = Books()
    now = datetime.now(UTC)  # noqa: TID251 - the services of this run live now
    stack.start_worker("normal")
    uses = story(now)
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        while together := list(islice(uses, IN_ONE_TRANSACTION)):
            with service.transaction():
                for use in together:
                    record(service, use)
            for use in together:
                books.note(use)
    assert len(books.windows) == WINDOWS
    assert books.events == EVENTS
    show_pending(stack, books)
    map_customers(stack, books)

    await_settled(stack, books, 240)

    verdict = judge(stack, books)
    witness.proved(
        f"completeness {share(EVENTS - verdict.lost, EVENTS)}, duplicates "
        f"{share(verdict.double, EVENTS)}, pending {share(windows_pending(stack, books), WINDOWS)} "
        f"of {EVENTS} events in {WINDOWS} windows"
    )
    assert_exact(stack, books)
    assert pending(stack, books) == windows_pending(stack, books) == 0
    audit = stack.tailrace("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert audit.stdout.rstrip().endswith("lost 0 · double 0")
    for line in audit.stdout.strip().splitlines():
        witness.proved(f"`tailrace audit`: {line.strip()}")
    replayed = stack.tailrace("replay")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert ", 0 differences, " in replayed.stdout
    (rate,) = (line for line in replayed.stderr.splitlines() if line.endswith("records a second"))
    witness.proved(f"`tailrace replay`: {replayed.stdout.strip().splitlines()[-1]}, at {rate}")


def share(number: int, of: int) -> str:
    return f"{100 * number / of:g} %"
