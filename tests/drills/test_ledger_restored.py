"""The ledger is restored from a backup under its workers: noticed, adopted, made good."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.attempts import whole
from tests.support.backup import back_up, restore
from tests.support.book_reading import ledger_number
from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    map_customers,
    pending,
    scattered,
    settled,
    show_pending,
    write,
)
from tests.support.live import LiveStack, live_stack
from tests.support.shifted import ShiftedStack, shifted_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(420)]
REASON = ("--yes", "--reason", "drill: the backup was restored")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LiveStack]:
    """A stack of its own: what is dated before an adoption waits, in every drill beside it too."""
    with live_stack(tmp_path / "stack") as own:
        yield own


def copy_ledger(stack: LiveStack, template: str, name: str) -> None:
    """A database as a copy of another, whoever is connected to either."""
    admin = make_conninfo(stack.facts["ledger_owner_dsn"], dbname="postgres")
    with psycopg.connect(admin, autocommit=True) as conn:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        conn.execute(drop.format(sql.Identifier(name)))
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (template,)
        )
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        conn.execute(create.format(sql.Identifier(name), sql.Identifier(template)))


def held(stack: LiveStack, books: Books) -> int:
    """Units that wait for a customer."""
    text = "SELECT coalesce(sum(held), 0) FROM ledger.balance WHERE tenant_id = ANY(%s)"
    return ledger_number(stack, text, sorted(books.tenants))


def halted(stack: LiveStack) -> bool:
    text = "SELECT count(*) FROM ledger.halt WHERE lifted_at IS NULL"
    return ledger_number(stack, text) == 1


@pytest.mark.drill(
    name="ledger-restored",
    about="The ledger is restored from a backup under its workers: noticed, adopted, made good",
)
def test_a_restored_ledger_is_adopted_and_every_amount_is_at_stripe_once(stack: LiveStack) -> None:
    name = str(conninfo_to_dict(stack.facts["ledger_owner_dsn"])["dbname"])
    before, after = Books(), Books()
    write(stack, scattered("before", 60, tenants=3, seed=31), before)
    stack.start_worker("restored")
    await_settled(stack, before)
    stack.stop_workers()
    copy_ledger(stack, name, f"{name}_backup")

    worker = stack.start_worker("restored")
    write(stack, scattered("after", 60, tenants=3, seed=31), after)
    await_settled(stack, after)
    sent = len(stack.stand_in.oracle())
    copy_ledger(stack, f"{name}_backup", name)
    until("publishing halted", lambda: halted(stack), 60)
    show_pending(stack, after)

    # The restored ledger does not know these customers either; they are mapped again.
    after.mapped.clear()
    map_customers(stack, after)
    with psycopg.connect(stack.facts["ledger_owner_dsn"], autocommit=True) as conn:
        conn.execute("UPDATE ledger.setting SET value = '0' WHERE name LIKE 'reconcile_%'")
    plan = stack.tailrace("ledger", "adopt")
    assert plan.returncode == 0, plan.stderr
    assert "at Stripe besides" in plan.stdout
    adopted = stack.tailrace("ledger", "adopt", *REASON)
    assert adopted.stdout.strip().endswith("adopted: receipt 1, drill: the backup was restored")

    behind = (
        "SELECT count(*) FROM ledger.went_back b JOIN ledger.position p USING (log_id, partition)"
        " WHERE p.position < b.acknowledged"
    )
    until("all told again", lambda: ledger_number(stack, behind) == 0, 60)
    assert worker.alive, "it made the difference good while it ran"
    assert len(stack.stand_in.oracle()) == sent, "nothing was sent before it was compared"

    def reconciled() -> bool:
        ran = stack.tailrace("reconcile", *REASON)
        assert ran.returncode in {0, 1}, ran.stderr
        return settled(stack, before) and settled(stack, after)

    until("every cell settled", reconciled, 180)
    assert_exact(stack, before)
    assert_exact(stack, after)
    assert len(stack.stand_in.oracle()) == sent, "all of it was there already"
    again = stack.tailrace("ledger", "adopt", *REASON)
    assert "nothing to adopt: receipt 1" in again.stdout
    assert stack.tailrace("audit").stdout.rstrip().endswith("lost 0 · double 0")


@pytest.mark.long
@pytest.mark.drill(
    name="ledger-forgot-attempts",
    about="The restored ledger lacks nothing but what was sent: workers remember",
)
def test_a_ledger_that_forgot_nothing_but_what_was_sent_sends_none_of_it_again(
    stack: LiveStack,
) -> None:
    """No position tells: all usage is in the backup. The restored ledger would send it once more,
    its requests frozen anew, and the worker that sent it is gone as well."""
    name = str(conninfo_to_dict(stack.facts["ledger_owner_dsn"])["dbname"])
    books = Books()
    paused = stack.tailrace("pause", "--all", "--reason", "drill: the backup is made now", "--yes")
    assert paused.returncode == 0, paused.stderr
    stack.start_worker("sender")
    write(stack, scattered("quiet", 60, tenants=3, seed=37), books)
    until("all of it waits", lambda: pending(stack, books) == whole(books), 60)
    copy_ledger(stack, name, f"{name}_backup")
    assert stack.tailrace("resume", "--all", "--reason", "drill: go on", "--yes").returncode == 0
    await_settled(stack, books)
    sent = len(stack.stand_in.oracle())
    stack.stop_workers()
    copy_ledger(stack, f"{name}_backup", name)

    stack.start_worker("another")
    until("publishing halted", lambda: halted(stack), 60)
    show_pending(stack, books)

    assert ledger_number(stack, "SELECT count(*) FROM ledger.went_back") == 0
    plan = stack.tailrace("ledger", "adopt")
    assert "workers remember attempt" in plan.stdout, plan.stderr
    with psycopg.connect(stack.facts["ledger_owner_dsn"], autocommit=True) as conn:
        conn.execute("UPDATE ledger.setting SET value = '0' WHERE name LIKE 'reconcile_%'")
    assert stack.tailrace("resume", "--all", "--reason", "drill: go on", "--yes").returncode == 0
    assert "adopted: receipt 1" in stack.tailrace("ledger", "adopt", *REASON).stdout

    def reconciled() -> bool:
        ran = stack.tailrace("reconcile", *REASON)
        assert ran.returncode in {0, 1}, ran.stderr
        return settled(stack, books)

    until("every cell settled", reconciled, 180)
    assert_exact(stack, books)
    assert len(stack.stand_in.oracle()) == sent, "all of it was there already"
    assert stack.tailrace("audit").stdout.rstrip().endswith("lost 0 · double 0")


@pytest.fixture
def shifted(tmp_path: Path) -> Iterator[ShiftedStack]:
    with shifted_stack(tmp_path / "stack") as own:
        yield own


@pytest.mark.drill(
    name="ledger-restored-hour-old",
    about="The ledger is restored from an hour-old dump: what was sent since is found by its hour",
)
@pytest.mark.long
def test_an_hour_of_the_ledger_is_made_good_by_stripes_sums(
    shifted: ShiftedStack, tmp_path: Path
) -> None:
    """With the limits of production: two readings a day apart decide on every hour."""
    stack = shifted
    dsn = stack.facts["ledger_owner_dsn"]
    before, after = Books(), Books()
    worker = stack.start_worker("restored")
    write(stack, scattered("before", 60, tenants=3, seed=171, now=stack.now), before)
    await_settled(stack, before)
    back_up(dsn, tmp_path / "backup")
    stack.move(timedelta(hours=1))
    write(stack, scattered("after", 60, tenants=3, seed=172, now=stack.now), after)
    await_settled(stack, after)
    sent = len(stack.stand_in.oracle())

    restore(dsn, tmp_path / "backup")
    until("publishing halted", lambda: halted(stack), 60)
    assert pending(stack, after) == 0, "the ledger has forgotten it"
    show_pending(stack, after)
    adopted = stack.tailrace("ledger", "adopt", *REASON)
    assert adopted.returncode == 0, adopted.stdout + adopted.stderr
    customers = sorted(after.tenants)
    until("usage to wait for a customer", lambda: held(stack, after) == whole(after), 60)
    for tenant in customers:
        mapped = stack.tailrace("customers", "map", tenant, f"cus_{tenant}")
        assert mapped.returncode == 0, mapped.stdout + mapped.stderr
    until(
        lambda: f"all of it to wait for its hour; {pending(stack, after)} units do",
        lambda: pending(stack, after) == whole(after),
        60,
    )
    stack.settle_by_sums()
    await_settled(stack, after, 60)
    for books in (before, after):
        assert_exact(stack, books)
    assert len(stack.stand_in.oracle()) == sent, "all of it was there already"
    assert worker.alive
