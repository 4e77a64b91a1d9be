"""A shifted clock for the whole stack: an offset in a file → every part's wall clock.

The parts run under libfaketime, which reads the file at every question for the time. Only the wall
clock moves: timeouts are measured on the monotonic clock and stay true.
"""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.paths import Paths

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LIBRARY = "libfaketime.so.1"


class ClockError(Exception):
    """The clock cannot be shifted. The message says what to do."""


def parse_offset(text: str) -> int:
    """Seconds of an offset such as `+26h`, `+90s`, `-5m` or `0`.

    Raises:
        ClockError: The text has another form.
    """
    if text.strip() == "0":
        return 0
    match = re.fullmatch(r"([+-])(\d{1,9})([smhd])", text.strip())
    if match is None:
        message = f"offset {text!r}: expected a sign, a number and s, m, h or d, such as +26h; or 0"
        raise ClockError(message)
    seconds = int(match[2]) * UNITS_S[match[3]]
    return -seconds if match[1] == "-" else seconds


def read_offset(file: Path) -> int | None:
    """The offset in force in seconds, or None where the stack runs on the machine's clock."""
    try:
        return int(file.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None


def set_offset(file: Path, seconds: int) -> None:
    """Sets the offset of every running part at once."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(f"{seconds:+d}\n", encoding="ascii")
    # The database runs under another account where root started it.
    fresh.chmod(0o644)
    fresh.replace(file)


def environment(paths: Paths) -> dict[str, str]:
    """What a part needs in its environment to follow the offset file; creates the file at zero.

    Raises:
        ClockError: The libfaketime wheel is not installed or has no library for this machine.
    """
    if read_offset(paths.clock) is None:
        set_offset(paths.clock, 0)
    # A copy, because the account of the database may not reach into a virtual environment.
    library = paths.dir / LIBRARY
    if not library.exists():
        shutil.copy(_library(), library)
        library.chmod(0o755)
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(paths.clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def _library() -> Path:
    spec = find_spec("libfaketime")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for file in Path(root).rglob(LIBRARY):
            return file
    message = (
        "--shift-clock needs the wheel `libfaketime` (Linux): install it with "
        "`pip install libfaketime`; without --shift-clock everything else works"
    )
    raise ClockError(message)
