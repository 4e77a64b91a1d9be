"""Parts that can each be away → samples of those that answer, and which do.

All are read at once, each in a thread of its own. A part that does not answer in time costs its own
figures and nothing else; its reading goes on, and the next scrape waits for the same one, so that a
backend that hangs is asked once and not by every scrape again. What such a reading gave is told as
long as it is young: figures of an hour ago, told as if they were of now, would hide an outage.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import structlog

from streams.adapters.metrics import Sample

Read = Callable[[], Iterable[Sample]]
"""Blocks for as long as its backend takes; raises whatever the backend's client raises."""
KEPT_S: Final = 60.0
log = structlog.get_logger("exporter")


class _Reading(NamedTuple):
    samples: "asyncio.Future[list[Sample]]"
    begun_s: float
    """By the loop's clock."""


class Scrape:
    """Reads all parts when it is asked."""

    def __init__(self, parts: Mapping[str, Read], within_s: float, kept_s: float = KEPT_S) -> None:
        """Reads nothing yet.

        Args:
            parts: by name.
            within_s: how long a scrape waits; below the timeout of whoever scrapes.
            kept_s: how long after its begin a reading that nobody waited for is still told.
        """
        self._parts = parts
        self._within_s = within_s
        self._kept_s = kept_s
        self._threads = ThreadPoolExecutor(max_workers=len(parts), thread_name_prefix="scrape")
        self._running: dict[str, _Reading] = {}
        self._away: dict[str, str] = {}

    async def samples(self) -> list[Sample]:
        """What can be read now, and `usage_exporter_up` of every part."""
        readings = {name: self._reading(name, read) for name, read in self._parts.items()}
        done, _ = await asyncio.wait(readings.values(), timeout=self._within_s)
        found: list[Sample] = []
        for name, reading in readings.items():
            why = _why_not(reading, reading in done, self._within_s)
            found.append(("usage_exporter_up", name, int(why is None)))
            if why is None:
                found += reading.result()
            # Another scrape that waited for it too may have begun a new one meanwhile.
            if reading in done and name in self._running and self._running[name].samples is reading:
                del self._running[name]
            self._tell(name, why)
        return found

    def _reading(self, name: str, read: Read) -> "asyncio.Future[list[Sample]]":
        """The one that goes on or was never told, or a new one."""
        loop = asyncio.get_running_loop()
        known = self._running.get(name)
        if known and not (known.samples.done() and loop.time() - known.begun_s > self._kept_s):
            return known.samples
        samples = loop.run_in_executor(self._threads, _all_of, read)
        self._running[name] = _Reading(samples, loop.time())
        return samples

    def close(self) -> None:
        """Lets go of the threads; a reading that hangs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _tell(self, name: str, why: str | None) -> None:
        """Once, not with every scrape."""
        if why is not None and name not in self._away:
            log.warning("part_unreadable", part=name, error=why)
        elif why is None and name in self._away:
            log.info("part_readable", part=name)
        self._away.pop(name, None)
        if why is not None:
            self._away[name] = why


def _all_of(read: Read) -> list[Sample]:
    return list(read())


def _why_not(
    reading: "asyncio.Future[list[Sample]]", finished: bool, within_s: float
) -> str | None:
    if not finished:
        return f"no answer within {within_s:g} s"
    error = reading.exception()
    return None if error is None else f"{type(error).__name__}: {error}"
