"""A worker of the drills as a process: `python -m tests.integration.engine.toy_worker ...`."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import structlog

from streams.crash_points import crash_at, never
from streams.engine import packed_reader
from streams.engine.fail_stop import FailStop
from streams.engine.settlement import Pair
from streams.engine.store import Store
from tests.integration.engine.toy import Worker, settings


def die_while_loading(nth: int) -> None:
    """SIGKILL once the nth packed record's ids lie in a table that is being rebuilt."""
    packed_reader._GROUP_RECORDS = 1  # type: ignore[misc]  # each of them is loaded by itself
    left, load = nth, Store.load

    def loaded(store: Store, family: str, pairs: Iterable[Pair]) -> None:
        nonlocal left
        load(store, family, pairs)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Store.load = loaded  # type: ignore[method-assign,assignment]


async def run(bootstrap: str, topic: str, data_dir: Path, crash: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    what, _, step = crash.rpartition("@")
    if what == "load":
        die_while_loading(int(step))
        step = ""
    number = signal.SIGSTOP if what == "sleep" else signal.SIGKILL
    die = crash_at(step, lambda _signal: os.kill(os.getpid(), number)) if step else never
    worker = Worker(settings(bootstrap, topic, data_dir), FailStop(), crash_at=die)
    worker.packed_log.start()
    worker.feeder.start(loop, worker.agent.put)
    await stop.wait()
    await loop.run_in_executor(None, worker.feeder.drain)
    worker.packed_log.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    asyncio.run(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
