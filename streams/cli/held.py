"""Partitions that wait for somebody, as the workers themselves say it."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from streams.cli import terminal

_TIMEOUT_S = 1.0


def tell_held(facts: Mapping[str, Any]) -> int:
    """Says which partitions are held, why, and what to do; their number.

    Only a sandbox lists its workers; elsewhere `usage_partition_held` and each worker's /held page
    say the same.
    """
    count = 0
    for line in _held(facts):
        count += 1
        terminal.say(f"held: {line}")
    if count:
        terminal.say(
            "a held partition admits nothing until its cause is gone and its worker was started "
            "again; the others go on, and nothing of it is lost meanwhile. One that waits at a "
            "single record can go on without it: `tailrace held list`"
        )
    return count


def _held(facts: Mapping[str, Any]) -> Iterator[str]:
    for worker in facts.get("pids", {}).get("workers", ()):
        address = worker.get("metrics_url")
        if not str(address).startswith("http://"):
            continue
        try:
            with urlopen(f"{address}/held", timeout=_TIMEOUT_S) as page:  # noqa: S310 - http only
                yield from page.read().decode().splitlines()
        except (URLError, OSError):
            continue
