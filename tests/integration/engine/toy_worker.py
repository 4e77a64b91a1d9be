"""A worker of the drills as a process: `python -m tests.integration.engine.toy_worker ...`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import structlog

from streams.crash_points import crash_at, never
from streams.engine.fail_stop import FailStop
from tests.integration.engine.toy import Worker, settings


async def run(bootstrap: str, topic: str, data_dir: Path, crash: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    what, _, step = crash.rpartition("@")
    number = signal.SIGSTOP if what == "sleep" else signal.SIGKILL
    die = crash_at(step, lambda _signal: os.kill(os.getpid(), number)) if crash else never
    worker = Worker(settings(bootstrap, topic, data_dir), FailStop(), crash_at=die)
    worker.packed_log.start()
    worker.feeder.start(loop, worker.agent.put)
    await stop.wait()
    await loop.run_in_executor(None, worker.feeder.drain)
    worker.packed_log.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    asyncio.run(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
