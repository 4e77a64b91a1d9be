"""The end of a process that must not continue: named, logged, at once."""

import os
from collections.abc import Callable
from enum import IntEnum
from typing import NoReturn

import structlog

log = structlog.get_logger("engine")


class ExitCode(IntEnum):
    """Why the process ended; a supervisor may start it again after all but `REFUSED`."""

    SETTLE_DEADLINE = 70
    """A chunk was neither settled nor failed in time."""
    CONSUMER_FATAL = 71
    """The group consumer is dead for good."""
    AGENT_FAILED = 72
    """The agent raised something nobody expected."""
    LOG_CHANGED = 73
    """The topic was recreated under the running worker; the next start holds the partitions."""
    STATE_UNAVAILABLE = 74
    """The disk is full or not accessible."""
    RECOVERY_FAILED = 75
    """A partition could not be recovered for a reason nobody expected."""
    ENGINE_FAILED = 76
    """The feeder itself failed."""
    REFUSED = 78
    """The configuration is not one to work by; a person changes it first."""


Exit = Callable[[int], object]
"""Ends the process; in tests it only takes note."""


def exit_now(code: int) -> NoReturn:
    """End the process without running anything else.

    Handlers, other threads and buffers could only do harm: what is not on the broker or in RocksDB
    by now is repeated by the next worker.
    """
    os._exit(code)


class FailStop:
    """Ends the process once, by name."""

    def __init__(self, exit_: Exit = exit_now) -> None:
        self._exit = exit_
        self.code: ExitCode | None = None

    def __call__(self, code: ExitCode, reason: str, **facts: object) -> None:
        """Log why, then end the process with the code."""
        if self.code is None:
            self.code = code
            log.critical("fail_stop", code=int(code), name=code.name, reason=reason, **facts)
            self._exit(int(code))
