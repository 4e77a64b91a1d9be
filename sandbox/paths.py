"""Where a sandbox keeps its files: one directory → every path below it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from streams.cli.directory import find_directory
from streams.cli.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """The layout of one sandbox directory. Nothing of it lives elsewhere, except the jars."""

    dir: Path
    """Absolute."""
    named: str = ""
    """How it was named: `--dir box`, `TAILRACE_DIR=box`; empty for the default."""

    def command(self, words: str) -> str:
        """What to type for this very sandbox: `tailrace sandbox down --dir box`."""
        option = f" {self.named}" if self.named.startswith("--dir ") else ""
        return f"tailrace sandbox {words}{option}"

    @property
    def sandbox_json(self) -> Path:
        """Addresses and process ids of the running stack; absent while nothing runs."""
        return self.dir / "sandbox.json"

    @property
    def ports_json(self) -> Path:
        """The ports, chosen once."""
        return self.dir / "ports.json"

    @property
    def secrets_json(self) -> Path:
        """Generated passwords, readable by the owner only."""
        return self.dir / "secrets.json"

    @property
    def wanted_json(self) -> Path:
        """What the operator asked for; the supervisor follows it."""
        return self.dir / "run" / "wanted.json"

    @property
    def partitions_json(self) -> Path:
        """How many partitions the topics had at the last start: they may have been grown."""
        return self.dir / "run" / "partitions.json"

    @property
    def progress(self) -> Path:
        """One JSON line per event of the supervisor's life."""
        return self.dir / "run" / "progress.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the supervisor for as long as it lives."""
        return self.dir / "run" / "supervisor.lock"

    @property
    def pid_file_of_supervisor(self) -> Path:
        """Which process holds the lock; not among the parts' pid files."""
        return self.dir / "run" / "supervisor.json"

    @property
    def starting_json(self) -> Path:
        """Which `up` is starting the stack; absent before and once it is ready."""
        return self.dir / "run" / "starting.json"

    @property
    def run(self) -> Path:
        """Pid files and the supervisor's own files."""
        return self.dir / "run"

    @property
    def logs(self) -> Path:
        """One log file per part."""
        return self.dir / "logs"

    @property
    def etc(self) -> Path:
        """Generated configuration of the parts."""
        return self.dir / "etc"

    @property
    def clock(self) -> Path:
        """The offset that a shifted stack adds to the machine's clock."""
        return self.dir / "clock"

    def log(self, part: str) -> Path:
        """The log of one part."""
        return self.logs / f"{part}.log"

    def pid_file(self, part: str) -> Path:
        """The pid file of one part."""
        return self.run / f"{part}.pid"

    def worker_data(self, number: int) -> Path:
        """The data directory of one worker."""
        return self.dir / "workers" / str(number)

    def make(self) -> None:
        """Creates the directories, readable by the owner only where they hold secrets.

        Raises:
            OSError: The directory cannot be written; the prerequisites say so earlier.
        """
        for folder in (self.dir, self.run, self.logs, self.etc, self.dir / "workers"):
            folder.mkdir(parents=True, exist_ok=True)


def find_paths(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Paths:
    """The sandbox that a command means.

    Raises:
        UsageProblemError: the option names a file.
        ConfigurationError: the variable does.
    """
    return Paths(*find_directory(option, environ, cwd))


def unwritable(folder: Path) -> str | None:
    """Why a directory, or the nearest one above it that exists, cannot be written; None if it can.

    It is tried: root may write by its permissions what a read-only mount refuses.
    """
    try:
        with tempfile.TemporaryFile(dir=nearest(folder)):
            return None
    except OSError as problem:
        return problem.strerror or str(problem)


def nearest(folder: Path) -> Path:
    """The folder itself or the nearest one above it that is there and can be looked at."""
    for each in (folder, *folder.parents):
        with contextlib.suppress(PermissionError):
            if each.exists():
                return each
    return folder


def write_json(path: Path, value: Mapping[str, Any], *, mode: int = 0o600) -> None:
    """Replaces a file whole: a reader sees the old text or the new one, never half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(value, indent=2) + "\n")
        os.chmod(name, mode)  # noqa: PTH101 - the temporary file is known by name only
        os.replace(name, path)  # noqa: PTH105 - the same
    except BaseException:
        os.unlink(name)  # noqa: PTH108 - the same
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a file written by `write_json`, or None where there is none.

    Raises:
        ConfigurationError: The file was edited by hand into something else than JSON.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        box = path.parent.parent if path.parent.name == "run" else path.parent
        fix = f"mend or delete it; `tailrace sandbox down --dir {box}` ends what runs"
        raise ConfigurationError(f"{path}: is damaged: {error}", fix=fix) from error
