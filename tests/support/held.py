"""Records that hold a partition, as `tailrace held list` tells of them."""

from typing import Any

import msgspec

from streams.engine.partitioner import home_partition
from tests.support.live import LiveStack


def home(stack: LiveStack, tenant: str) -> int:
    """The partition of a tenant's usage."""
    return home_partition(tenant.encode(), int(stack.facts["settings"]["TAILRACE_PARTITIONS"]))


def held_records(stack: LiveStack) -> list[dict[str, Any]]:
    """What `held list` lists."""
    listed = stack.tailrace("held", "list", "--json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    document = msgspec.json.decode(listed.stdout, type=dict[str, list[dict[str, Any]]])
    return document["records"]
