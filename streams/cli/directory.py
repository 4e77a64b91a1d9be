"""Which directory a command means: option, else variable, else `.tailrace/` here → a path.

The sandbox writes there; every other command reads the addresses that it left.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from streams.cli.errors import ConfigurationError, UsageProblemError

DEFAULT_DIR: Final = ".tailrace"
DIR_VARIABLE: Final = "TAILRACE_DIR"


class Directory(NamedTuple):
    """A sandbox's directory, and how it was named: `--dir box`, `TAILRACE_DIR=box`, or not."""

    path: Path
    """Absolute."""
    named: str
    """Empty for the default."""


def find_directory(
    option: Path | None, environment: Mapping[str, str], working_dir: Path
) -> Directory:
    """The directory that a command means; whether it exists is another question.

    Raises:
        UsageProblemError: the option names a file, or something below one.
        ConfigurationError: the variable does.
    """
    variable = environment.get(DIR_VARIABLE)
    named = f"--dir {option}" if option else f"{DIR_VARIABLE}={variable}" if variable else ""
    path = (working_dir / (option or variable or DEFAULT_DIR)).resolve()
    file = _file_in(path)
    if file is not None:
        problem = UsageProblemError if option else ConfigurationError
        what = "is a file" if file == path else f"{file} is a file"
        raise problem(
            f"{named or path}: {what}; a sandbox lives in a directory",
            fix="name a directory, which need not exist yet: `--dir /tmp/tailrace-box`",
        )
    return Directory(path, named)


def _file_in(path: Path) -> Path | None:
    """The path itself or the nearest thing above it that exists, if that is no directory."""
    for each in (path, *path.parents):
        try:
            if each.is_dir():
                return None
            if each.exists():
                return each
        except PermissionError:
            return None  # what lies behind is not ours to see; writing there will say so
    return None
