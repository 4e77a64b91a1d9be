"""A start under way, from its first moment: `down` and another `up` see it before a supervisor is.

Looking at the machine, fetching jars and making archives come first, and can take minutes.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from sandbox.paths import read_json, write_json
from sandbox.process import ProcessRef, living, ref_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sandbox.paths import Paths


def starter(paths: Paths) -> ProcessRef | None:
    """The process that is starting this sandbox now, if one lives."""
    return living(read_json(paths.starting_json))


def started(paths: Paths) -> None:
    """The stack is ready: the supervisor is whom others talk to from now on."""
    paths.starting_json.unlink(missing_ok=True)


@contextlib.contextmanager
def starting(paths: Paths) -> Iterator[ProcessRef | None]:
    """Says that this process starts the sandbox, until it is ready or given up.

    Gives another process that says so already, else None. Folders that were made for the note and
    are still empty at the end are taken away again.

    Raises:
        OSError: The directory cannot be written.
    """
    made = _made(paths.run)
    try:
        other = _claim(paths)
        try:
            yield other
        finally:
            if other is None:
                paths.starting_json.unlink(missing_ok=True)
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _made(folder: Path) -> list[Path]:
    """Makes a folder; gives those that had to be made, innermost first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _claim(paths: Paths) -> ProcessRef | None:
    mine = paths.run / f"starting.{os.getpid()}.json"
    me = ref_of(os.getpid())
    write_json(mine, {"pid": os.getpid(), "birth": me and me.birth})
    try:
        while True:
            # A link is made whole or not at all, so one of two that come together is told no.
            try:
                paths.starting_json.hardlink_to(mine)
            except FileExistsError:
                other = starter(paths)
                if other is not None:
                    return other
                paths.starting_json.unlink(missing_ok=True)
            else:
                return None
    finally:
        mine.unlink()
