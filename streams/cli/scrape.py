"""Parts that can each be away → samples of those that answer, and which do.

All are read at once, each in a thread of its own. A part that does not answer in time costs its own
figures and nothing else; its reading goes on, and the next scrape waits for the same one, so that a
backend that hangs is asked once and not by every scrape again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from streams.adapters.metrics import Sample

Read = Callable[[], Iterable[Sample]]
"""Blocks for as long as its backend takes; raises whatever the backend's client raises."""
log = structlog.get_logger("exporter")


class Scrape:
    """Reads all parts when it is asked."""

    def __init__(self, parts: Mapping[str, Read], within_s: float) -> None:
        """Reads nothing yet.

        Args:
            parts: by name.
            within_s: how long a scrape waits; below the timeout of whoever scrapes.
        """
        self._parts = parts
        self._within_s = within_s
        self._threads = ThreadPoolExecutor(max_workers=len(parts), thread_name_prefix="scrape")
        self._running: dict[str, asyncio.Future[list[Sample]]] = {}
        self._away: dict[str, str] = {}

    async def samples(self) -> list[Sample]:
        """What can be read now, and `usage_exporter_up` of every part."""
        loop = asyncio.get_running_loop()
        readings = {
            name: self._running.get(name) or loop.run_in_executor(self._threads, _all_of, read)
            for name, read in self._parts.items()
        }
        self._running.update(readings)
        done, _ = await asyncio.wait(readings.values(), timeout=self._within_s)
        found: list[Sample] = []
        for name, reading in readings.items():
            why = _why_not(reading, reading in done, self._within_s)
            found.append(("usage_exporter_up", name, int(why is None)))
            if why is None:
                found += reading.result()
            if reading in done:
                self._running.pop(name, None)
            self._tell(name, why)
        return found

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
