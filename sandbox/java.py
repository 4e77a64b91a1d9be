"""Which Java runs Kafka and Connect: JAVA_HOME, then PATH → the first one that is new enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_MIN = 17

FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)
"""Quick to start and small: a sandbox lives for minutes, on two cores."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java program and what it says of itself."""

    program: Path
    version: int
    """Feature version, 0 where it could not be read."""


def find_java(environ: Mapping[str, str]) -> tuple[Java | None, list[Java]]:
    """The Java to use, and those that were found but are too old."""
    too_old: list[Java] = []
    for program in _candidates(environ):
        java = Java(program, _version(program))
        if java.version >= VERSION_MIN:
            return java, too_old
        too_old.append(java)
    return None, too_old


def parse_version(text: str) -> int:
    """The feature version that `java -version` prints; 8 for `1.8.0_402`, 0 for anything else."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return 0
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    found = []
    home = environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        found.append(Path(home) / "bin" / "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        found.append(Path(on_path))
    return found


def _version(program: Path) -> int:
    try:
        done = subprocess.run(
            (str(program), "-version"), capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return parse_version(done.stderr + done.stdout)
