"""A fault of the sandbox → what a person sees of it, and the exit code.

Classes are known here by name, so that a command loads only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.cli.boundary import Shown, explain
from streams.cli.errors import CONFIGURATION, FINDING, TRY_AGAIN, UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

CODES: Mapping[str, int] = {
    "sandbox.clock.ClockError": CONFIGURATION,
    "sandbox.jars.JarsError": UNAVAILABLE,
    "sandbox.machine.MachineError": TRY_AGAIN,
    "sandbox.postgres.PostgresError": CONFIGURATION,
    "sandbox.kafka.KafkaError": CONFIGURATION,
    "sandbox.provision.KeptDataError": CONFIGURATION,
    "sandbox.supervisor.AlreadyRunningError": TRY_AGAIN,
    "sandbox.process.StillRunningError": FINDING,
    "builtins.OSError": CONFIGURATION,
}
"""Their texts say what to do themselves; every other class is known to all commands alike."""


def explained(error: BaseException) -> Shown:
    """The words and the exit code for an exception of a sandbox command."""
    for kind in type(error).__mro__:
        code = CODES.get(f"{kind.__module__}.{kind.__qualname__}")
        if code is not None:
            return Shown(code, str(error), "")
    return explain(error)
