"""Runbooks, followed line by line on a stack in the very state that they are for.

Each state is one that its metric tells of, before and no longer afterwards.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import psycopg
import pytest

from tests.support.books import Books, Use, await_settled, map_customers, record
from tests.support.held import held_records, home, record_newer
from tests.support.live import LiveStack
from tests.support.runbooks import runbook, words
from tests.support.scraped import exporter, scraped
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
TRY_AGAIN = 75
Metrics = Callable[[], Mapping[str, float]]


@pytest.fixture(scope="module")
def metrics(stack: LiveStack) -> Iterator[Metrics]:
    """What exporter and worker tell now."""
    worker = stack.workers[0]
    until("the worker's own page", lambda: bool(worker.said("probe")), 30)
    own = f"{worker.said('probe')[-1]['address']}/metrics"
    with exporter(stack.directory) as address:
        yield lambda: {**scraped(own), **scraped(address)}


def follow(stack: LiveStack, name: str, heading: str, **values: str) -> None:
    """Types what a section says; a look may find something, an act has to succeed."""
    fine = {0, 1} if heading == "Look" else {0}
    for command in runbook(name).commands(heading):
        arguments = words(command, {"REASON": "test: looked at", **values})
        until(partial(_typed, stack, arguments), partial(_ends, stack, arguments, fine), 60)


def _typed(stack: LiveStack, arguments: list[str]) -> str:
    ran = stack.tailrace(*arguments)
    return f"{' '.join(arguments)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}"


def _ends(stack: LiveStack, arguments: list[str], fine: set[int]) -> bool:
    ran = stack.tailrace(*arguments)
    assert ran.returncode in {*fine, TRY_AGAIN}, f"{arguments}\n{ran.stdout}{ran.stderr}"
    return ran.returncode in fine


def use(stack: LiveStack, tenant: str, *keys: str, hours: int = 3, mapped: bool = True) -> Books:
    """Usage of a tenant in windows that are over."""
    books = Books()
    at = datetime.now(UTC) - timedelta(hours=hours)  # noqa: TID251 - a service lives now
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for number, key in enumerate(keys):
            each = Use(tenant, "api_calls", key, 5, at - timedelta(minutes=number))
            record(service, each)
            books.note(each)
    if mapped:
        map_customers(stack, books)
    return books


def items(stack: LiveStack, kind: str, tenant: str) -> list[dict[str, Any]]:
    """What waits of a tenant."""
    ran = stack.tailrace(kind, "list", "--tenant", tenant, "--json")
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = msgspec.json.decode(ran.stdout)["items"]
    return found


def test_stripe_down(stack: LiveStack, metrics: Metrics) -> None:
    stack.stand_in.arm(kind="outage")
    books = use(stack, "stripe-down", "one", "two")
    until("the sink to count as down", lambda: metrics()["usage_sink_open"] == 1, 90)
    assert metrics()["usage_oldest_request_age_seconds"] > 0
    follow(stack, "UsageSinkDown", "Look")
    stack.stand_in.clear_faults()
    await_settled(stack, books)
    follow(stack, "UsageSinkDown", "It is over when")
    assert metrics()["usage_sink_open"] == 0


@pytest.mark.parametrize("name", ["UsagePublishingPaused", "UsageUnsettled"])
def test_publishing_paused(stack: LiveStack, metrics: Metrics, name: str) -> None:
    paused = stack.tailrace("pause", "--all", "--reason", "test: paused", "--yes")
    assert paused.returncode == 0, paused.stderr
    books = use(stack, f"paused-{name.lower()}", "one")
    pause = 'usage_publishing_paused{scope="all"}'
    until(
        "a window to wait",
        lambda: metrics().get('usage_incomplete_windows{metric="api_calls"}', 0) >= 1,
        60,
    )
    assert metrics()[pause] == 1
    follow(stack, name, "Look")
    follow(stack, name, "Act")
    await_settled(stack, books)
    follow(stack, name, "It is over when")
    assert metrics()[pause] == 0


def test_review_waiting(stack: LiveStack, metrics: Metrics) -> None:
    use(stack, "reviewed", "late-1", "late-2", hours=30)
    until("two items", lambda: len(items(stack, "review", "reviewed")) == 2, 60)
    late = 'usage_parked_items{kind="review",reason="late"}'
    waiting = metrics()[late]
    assert waiting >= 2
    first, second = (str(item["item"]) for item in items(stack, "review", "reviewed"))
    for heading in ("Look", "Act", "It is over when"):
        follow(stack, "UsageReviewWaiting", heading, ITEM=first, OTHER=second)
    assert metrics().get(late, 0) == waiting - 2


def test_dead_items(stack: LiveStack, metrics: Metrics) -> None:
    stack.stand_in.arm(kind="reject", count=1, match={"customer": "cus_dead-1"})
    books = use(stack, "dead-1", "one")
    until("a dead item", lambda: len(items(stack, "dead", "dead-1")) == 1, 90)
    refused = 'usage_parked_items{kind="dead",reason="refused"}'
    assert metrics()[refused] >= 1
    (item,) = items(stack, "dead", "dead-1")
    for heading in ("Look", "Act", "It is over when"):
        follow(stack, "UsageDeadItems", heading, ITEM=str(item["item"]))
    assert items(stack, "dead", "dead-1") == []
    until("its amount to be at Stripe", lambda: settled_units(stack, books) == 5, 60)


def settled_units(stack: LiveStack, books: Books) -> int:
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        row = ledger.execute(
            "SELECT coalesce(sum(settled), 0) FROM ledger.balance WHERE tenant_id = ANY(%s)",
            (sorted(books.tenants),),
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_unmapped_tenants(stack: LiveStack, metrics: Metrics) -> None:
    books = use(stack, "nobody-pays", "one", mapped=False)
    until("an entry", lambda: metrics()["usage_unmapped_entries"] >= 1, 60)
    values = {"TENANT": "nobody-pays", "CUSTOMER": "cus_nobody-pays"}
    for heading in ("Look", "Act"):
        follow(stack, "UsageUnmappedTenants", heading, **values)
    await_settled(stack, books)
    follow(stack, "UsageUnmappedTenants", "It is over when", **values)
    assert metrics()["usage_unmapped_entries"] == 0


def test_partition_held(stack: LiveStack, metrics: Metrics) -> None:
    partition = home(stack, "held-1")
    at = datetime.now(UTC) - timedelta(hours=3)  # noqa: TID251 - a service lives now
    record_newer(stack, Use("held-1", "api_calls", "from-the-future", 7, at))
    behind = use(stack, "held-1", "behind")
    name = f'usage_partition_held{{partition="{partition}"}}'
    until("the partition to be held", lambda: metrics().get(name) == 1, 60)
    until("the record to be reported", lambda: len(held_records(stack)) == 1, 30)
    (held,) = held_records(stack)
    values = {"PARTITION": str(partition), "OFFSET": str(held["offset"])}
    for heading in ("Look", "Act"):
        follow(stack, "UsagePartitionHeld", heading, **values)
    await_settled(stack, behind)
    follow(stack, "UsagePartitionHeld", "It is over when", **values)
    assert metrics().get(name, 0) == 0
    # Decided again, a record that was skipped is skipped.
    replayed = stack.tailrace("replay", "--offsets", str(partition))
    assert replayed.returncode == 0, replayed.stdout
