"""Many processes, each with its share of the seeds; what they found comes back in order."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Final, TypeVar

from tests.simulation.run import quiet

Item = TypeVar("Item")
Result = TypeVar("Result")
CORES: Final = os.cpu_count() or 1
_for_ever = ExitStack()
"""What a process has entered and never leaves."""


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """The results of work inside `quiet`, in the order of the items.

    Args:
        work: what can be sent to another process, and so can what it takes and gives.
        items: what it is done for.
        workers: how many processes; one is this process.
    """
    if workers == 1:
        with quiet():
            yield from map(work, items)
        return
    # Started anew, not forked: nothing that this process patched or collected goes along.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin) as pool:
        yield from pool.map(work, items)


def _begin() -> None:
    # An interrupt is for the process that prints; it ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _for_ever.enter_context(quiet())
