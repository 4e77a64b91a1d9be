"""SIGINT and SIGTERM → a call, for processes that end in order."""

import asyncio
import signal
from collections.abc import Callable


def on_stop(act: Callable[[], None]) -> None:
    """Has this called whenever the process is told to stop, by Ctrl-C or by whoever runs it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, act)
