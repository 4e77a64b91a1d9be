"""Busy tenants are spread over more Kafka keys, and fewer, while their usage flows.

A key decides where an identity is remembered, so copies have to meet the first recording wherever
new usage of the tenant goes since; and a window's amount is that of all its shards.
"""

from collections.abc import Sequence
from typing import Final

import psycopg
import pytest

from tests.support import witness
from tests.support.book_reading import ledger_number
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    record,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveStack
from tests.support.struck import IMPATIENT

pytestmark = [pytest.mark.drill, pytest.mark.timeout(240)]
PART: Final = 120
TENANTS: Final = 3
SPREAD: Final = (
    "SELECT count(*) FROM (SELECT FROM ledger.level WHERE tenant_id = ANY(%s)"
    " GROUP BY tenant_id, metric, window_start HAVING count(DISTINCT shard) > 1) AS w"
)


def spread(stack: LiveStack, books: Books, shards: int) -> None:
    with psycopg.connect(stack.facts["source_dsn"], autocommit=True) as ops:
        for tenant in sorted(books.tenants):
            ops.execute("SELECT metering.set_shards(%s, %s)", (tenant, shards))
    witness.did(f"{len(books.tenants)} tenants are spread over {shards} keys each")


def retry(stack: LiveStack, uses: Sequence[Use]) -> None:
    """The service asks once more, as after an answer that it has not seen."""
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for use in uses:
            record(service, use)


@pytest.mark.drill(name="tenants-sharded")
def test_tenants_get_more_shards_and_fewer_under_load(stack: LiveStack) -> None:
    books = Books()
    uses = list(scattered("sharded", 4 * PART, tenants=TENANTS, seed=36))
    parts = [uses[number : number + PART] for number in range(0, len(uses), PART)]
    worker = stack.start_worker("sharded", **IMPATIENT)
    write(stack, parts[0], books)
    spread(stack, books, 3)
    write(stack, parts[1], books)
    retry(stack, parts[0])
    worker.kill()

    spread(stack, books, 5)
    write(stack, parts[2], books)
    show_pending(stack, books)
    stack.start_worker("sharded", **IMPATIENT)
    spread(stack, books, 1)
    write(stack, parts[3], books)
    retry(stack, [*parts[1], *parts[2]])

    await_settled(stack, books)
    assert_exact(stack, books)
    windows = ledger_number(stack, SPREAD, sorted(books.tenants))
    assert windows, "no window has usage of several shards: nothing was shown"
    witness.proved(f"{windows} windows hold usage of several shards")
    audit = stack.tailrace("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
