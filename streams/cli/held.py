"""Partitions that wait for somebody, as the workers themselves say it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from streams.cli import terminal
from streams.cli.stack import listed_workers

REMEDY: Final = (
    "a held partition admits nothing until its cause is gone and its worker was started again, or, "
    "where it waits at a single record, until that was skipped, which needs no start: `tailrace "
    "held list`. The others go on, and nothing of it is lost meanwhile"
)

_TIMEOUT_S: Final = 1.0
_LINE: Final = re.compile(r"partition (\d+): (.+)")


class Held(NamedTuple):
    """One partition that waits, and why."""

    partition: int
    why: str

    def __str__(self) -> str:
        """As the worker says it."""
        return f"partition {self.partition}: {self.why}"


def held_partitions(facts: Mapping[str, Any]) -> list[Held]:
    """The partitions that are held now, in their order; blocks for a second a worker at most.

    Only a sandbox lists its workers; elsewhere `usage_partition_held` and each worker's /held page
    say the same.
    """
    return sorted(_held(facts))


def tell_held(facts: Mapping[str, Any]) -> None:
    """The same on stderr, with what can be done about it."""
    held = held_partitions(facts)
    for each in held:
        terminal.say(f"held: {each}")
    if held:
        terminal.say(REMEDY)


def _held(facts: Mapping[str, Any]) -> Iterator[Held]:
    for worker in listed_workers(facts):
        address = worker.get("metrics_url")
        if not str(address).startswith("http://"):
            continue
        try:
            with urlopen(f"{address}/held", timeout=_TIMEOUT_S) as page:  # noqa: S310 - http only
                lines = page.read().decode().splitlines()
        except (URLError, OSError):
            continue
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is not None:
                yield Held(int(found[1]), found[2])
