"""The last attempt in a file of the worker's data directory.

Written by a rename, so a killed process leaves the old or the new one. Not forced to the disk: a
machine that loses its power loses the last seconds, which other workers remember.
"""

from pathlib import Path
from typing import Final

import msgspec
import structlog

from streams.core.lane import LastAttempt

NAME: Final = "last-attempt.json"
log = structlog.get_logger("publish")


class AttemptFile:
    """One worker's memory of the ledger's attempts."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def read(self) -> LastAttempt | None:
        """What was written last; None for nothing, or for nothing readable."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=LastAttempt)
        except msgspec.DecodeError:
            # A disk that lost its power in the middle; what it knew is known to others.
            log.warning("last_attempt_unreadable", path=str(self._path))
            return None

    def write(self, last: LastAttempt) -> None:
        """Replaces what was written.

        Raises:
            OSError: the disk is full or not accessible.
        """
        beside = self._path.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(last))
        beside.replace(self._path)
