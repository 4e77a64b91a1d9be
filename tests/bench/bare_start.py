"""A Faust worker that does nothing: how long Python and Faust take until an app's first task runs.

Called with a file name; the file is there once the task has run. Then it waits to be ended.
"""

import sys
from pathlib import Path

import faust
import uvloop
from faust.app.base import BootStrategy


class _Boot(BootStrategy):
    enable_kafka = False
    enable_web = False


class _App(faust.App):
    BootStrategy = _Boot


def main(started: Path) -> None:
    """Runs until it is ended."""
    uvloop.install()
    app = _App(
        "bench-bare", broker="kafka://unused", store="memory://", datadir=started.parent,
        web_enabled=False, topic_allow_declare=False, topic_disable_leader=True,
    )  # fmt: skip

    async def run() -> None:
        started.touch()  # noqa: ASYNC240  # nothing else runs here

    app.task(run)
    worker = faust.Worker(app, loglevel="WARN", redirect_stdouts=False, quiet=True)
    worker.spinner = None
    worker.execute_from_commandline()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
