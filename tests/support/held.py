"""Records that hold a partition, as `tailrace held list` tells of them."""

from typing import Any, Final

import msgspec
import psycopg

from streams.engine.partitioner import home_partition
from tests.support.books import Use, record
from tests.support.live import LiveStack

DEFINITION: Final = (
    "SELECT pg_get_functiondef('metering.payload(text, text, metering.usage_key)'::regprocedure)"
)


def home(stack: LiveStack, tenant: str) -> int:
    """The partition of a tenant's usage."""
    return home_partition(tenant.encode(), int(stack.facts["settings"]["TAILRACE_PARTITIONS"]))


def held_records(stack: LiveStack) -> list[dict[str, Any]]:
    """What `held list` lists."""
    listed = stack.tailrace("held", "list", "--json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    document = msgspec.json.decode(listed.stdout, type=dict[str, list[dict[str, Any]]])
    return document["records"]


def record_newer(stack: LiveStack, use: Use) -> None:
    """Records as an outbox of the next version would."""
    with psycopg.connect(stack.facts["postgres_dsn"]) as service:
        row = service.execute(DEFINITION).fetchone()
        assert row is not None
        service.execute(row[0].replace("'v', 1", "'v', 2").encode())
        record(service, use)
        service.execute(row[0].encode())
