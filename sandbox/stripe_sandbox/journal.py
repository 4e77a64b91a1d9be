"""The stand-in's memory on disk: one line of JSON per change, replayed at the start.

In: facts, appended before their answer is given. Out: the same facts after a restart. The stand-in
may be killed at any byte: a line without its end was never answered for, and is cut off.
"""

import fcntl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from sandbox.stripe_sandbox.fact import Fact

FILE_NAME = "journal.jsonl"


class DamagedJournalError(Exception):
    """A line of the journal is not a list of facts: `file`, `line`, and why.

    Only a hand or another program can have done that: a killed stand-in cuts the last line short,
    which is repaired. Restore the file, or delete the state directory to start from nothing.
    """

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(
            f"{path}, line {line}: {reason}; restore the file, or delete the directory to start "
            "from nothing"
        )


class InUseError(Exception):
    """Another stand-in remembers in this directory: one identifier would be accepted by both.

    Give each its own `--state-dir`, or stop the other one.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory}: another stand-in that runs remembers there")


class Journal:
    """An append-only file of facts.

    Lines go to the operating system before the answer goes to the client, so the process may be
    killed at any time. They are not forced to the disk: the machine may not. The file is
    locked while it is open; the lock goes with the process however it ends.
    """

    def __init__(self, directory: Path) -> None:
        """Opens the file and locks it.

        Raises:
            InUseError: somebody else has it open.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        self._file = self.path.open("ab", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise InUseError(directory) from None
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(list[Fact]).decode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def replay(self) -> Iterator[Fact]:
        """All facts in order; cuts off a last line without an end.

        Raises:
            DamagedJournalError: A whole line cannot be read.
        """
        whole = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    facts = self._decode(line)
                except msgspec.DecodeError as error:
                    raise DamagedJournalError(self.path, number, str(error)) from None
                yield from facts
                whole += len(line)
        self._file.truncate(whole)

    def append(self, facts: Sequence[Fact]) -> None:
        """Appends facts that belong together: all of them are replayed, or none."""
        line = self._encode(facts) + b"\n"
        if self._file.write(line) != len(line):
            message = f"{self.path}: the disk is full; free some space and start again"
            raise OSError(message)
