"""What stops a command, each with its exit code.

    CommandError
    ├── UsageProblemError      2   the command line asks for something that cannot be done
    ├── UnavailableError       69  a service did not answer
    ├── TryAgainError          75  not now; the same command may work in a while
    └── ConfigurationError     78  settings, files or installation are not as they must be

A finding is not an error: the command prints it as data and exits 1.
"""

from typing import ClassVar, Final

from streams.cli import entry

FINE: Final = 0
FINDING: Final = 1
USAGE: Final = 2
INTERNAL: Final = 70
UNAVAILABLE: Final = 69
TRY_AGAIN: Final = 75
CONFIGURATION: Final = 78
INTERRUPTED: Final = entry.INTERRUPTED
PIPE_CLOSED: Final = 141
"""As a shell counts a process that SIGPIPE ended."""


class CommandError(Exception):
    """A command cannot go on.

    Args:
        what: what was seen and why that stops the command.
        fix: what to type or change next.
    """

    exit_code: ClassVar[int] = FINDING

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


class UsageProblemError(CommandError):
    """The command line asks for something that cannot be done."""

    exit_code = USAGE


class UnavailableError(CommandError):
    """A service did not answer."""

    exit_code = UNAVAILABLE


class TryAgainError(CommandError):
    """Not now; the same command may work in a while."""

    exit_code = TRY_AGAIN


class ConfigurationError(CommandError):
    """Settings, files or installation are not as they must be."""

    exit_code = CONFIGURATION
