"""A fault of the sandbox → what a person sees of it, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.clock import ClockError
from sandbox.jars import JarsError
from sandbox.kafka import KafkaError
from sandbox.machine import MachineError
from sandbox.postgres import PostgresError
from sandbox.process import StillRunningError
from sandbox.provision import KeptDataError
from sandbox.supervisor import AlreadyRunningError
from streams.cli.boundary import Shown, explain
from streams.cli.errors import CONFIGURATION, FINDING, TRY_AGAIN, UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

CODES: Mapping[type[BaseException], int] = {
    ClockError: CONFIGURATION,
    JarsError: UNAVAILABLE,
    MachineError: TRY_AGAIN,
    PostgresError: CONFIGURATION,
    KafkaError: CONFIGURATION,
    KeptDataError: CONFIGURATION,
    AlreadyRunningError: TRY_AGAIN,
    StillRunningError: FINDING,
    OSError: CONFIGURATION,
}
"""Their texts say what to do themselves; every other class is known to all commands alike."""


def explained(error: BaseException) -> Shown:
    """The words and the exit code for an exception of a sandbox command."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return Shown(CODES[kind], str(error), "")
    return explain(error)
