"""One worker, one data directory: the lock on it, and where damaged state goes."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

import structlog

from streams.engine.errors import DataDirectoryInUse

_QUARANTINE_KEPT: Final = 2
log = structlog.get_logger("engine")


class DataDirectory:
    """A directory that belongs to this process while it is locked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def lock(self) -> None:
        """Take the directory for this process, creating it where it is missing.

        The lock goes with the process however it ends.

        Raises:
            DataDirectoryInUse: naming the process that has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise DataDirectoryInUse(
                f"data directory {self.path} is held by process {holder}: give each worker its "
                "own (TAILRACE_DATA_DIR), or stop that process"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode("ascii"))
        self._handle = handle

    def unlock(self) -> None:
        """Give the directory up."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def table(self, topic: str, partition: int) -> Path:
        """Directory of one partition's table."""
        return self.path / "tables" / f"{topic}-{partition}"


def quarantine(path: Path, reason: str) -> Path | None:
    """Set a damaged table aside as `*.corrupt-<n>`; the newest two are kept for a look.

    Returns:
        Where it is now; None where somebody has deleted it, which is damage too.
    """
    if not path.exists():
        log.error("state_deleted", path=str(path), reason=reason)
        return None
    taken = sorted(
        (int(other.suffix.removeprefix(".corrupt-")), other)
        for other in path.parent.glob(f"{path.name}.corrupt-*")
        if other.suffix.removeprefix(".corrupt-").isdecimal()
    )
    aside = path.with_name(f"{path.name}.corrupt-{taken[-1][0] + 1 if taken else 1}")
    path.rename(aside)
    log.error("state_quarantined", path=str(path), aside=str(aside), reason=reason)
    for _, old in taken[: max(0, len(taken) + 1 - _QUARANTINE_KEPT)]:
        shutil.rmtree(old, ignore_errors=True)
    return aside
