"""A shifted clock for the whole stack: an offset in a file → every part's wall clock, at once.

The parts run with a small library before libc (`shift_clock.c`) that maps the file and adds its
seconds to each answer. Only the wall clock moves: timeouts are measured on the monotonic clock and
stay true. libfaketime was tried first: its common build lets two threads that read the file at the
same time end the process, and under its thread-safe one the broker did not start within a minute.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.errors import UsageProblemError

if TYPE_CHECKING:
    from sandbox.paths import Paths

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
OFFSET = struct.Struct("=q")
SOURCE = Path(__file__).parent / "shift_clock.c"
LIBRARY = "libshift_clock.so"
ADVICE = (
    "--shift-clock needs Linux and a C compiler: `apt-get install gcc libc6-dev`; "
    "without --shift-clock everything else works"
)


class ClockError(Exception):
    """The clock cannot be shifted. The message says what to do."""


def parse_offset(text: str) -> int:
    """Seconds of an offset such as `+26h`, `+28h30m`, `-90s` or `0`.

    Raises:
        UsageProblemError: The text has another form.
    """
    if text.strip() == "0":
        return 0
    match = re.fullmatch(r"([+-])((?:\d{1,9}[smhd])+)", text.strip())
    if match is None:
        message = f"offset {text!r}: expected a sign, then numbers with s, m, h or d"
        raise UsageProblemError(message, fix="write it as +26h, +28h30m, -90s, +2d, or 0")
    parts = re.findall(r"(\d+)([smhd])", match[2])
    seconds = sum(int(number) * UNITS_S[unit] for number, unit in parts)
    return -seconds if match[1] == "-" else seconds


def read_offset(file: Path) -> int | None:
    """The offset in force in seconds, or None where the stack runs on the machine's clock."""
    try:
        return int(OFFSET.unpack(file.read_bytes())[0])
    except FileNotFoundError:
        return None


def set_offset(file: Path, seconds: int) -> None:
    """Sets the offset of every running part at once.

    The file is written in place, because the parts have it mapped: a new file under the old name
    would be seen by nobody.
    """
    with file.open("r+b" if file.exists() else "w+b", buffering=0) as handle:
        handle.write(OFFSET.pack(seconds))
    # The database runs under another account where root started it.
    file.chmod(0o644)


def environment(paths: Paths) -> dict[str, str]:
    """What a part needs in its environment to follow the offset file; creates the file at zero.

    Raises:
        ClockError: There is no C compiler, or this is no Linux.
    """
    if read_offset(paths.clock) is None:
        set_offset(paths.clock, 0)
    library = paths.dir / LIBRARY
    _compile(library)
    return {"LD_PRELOAD": str(library), "SHIFT_CLOCK_FILE": str(paths.clock)}


def _compile(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ClockError(ADVICE)
    done = subprocess.run(
        (compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        message = f"{ADVICE}\nCompiling {SOURCE.name} ended with: {done.stderr[-800:]}"
        raise ClockError(message)
