"""What every contender is: how it is started, when it is done, what it says came of it."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from sandbox.stack import part_environment
from tests.bench.oracle import ID_MODULUS, Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bench.stack import Stack


@dataclass(frozen=True, slots=True)
class Heat:
    """One start of one contender."""

    stack: Stack
    source: str
    folder: Path
    """Its own: data, log, result."""
    number: int
    launcher: tuple[str, ...] = (sys.executable,)
    """What `Contender.launcher` answered."""
    profile: bool = False
    """Whether the product's worker runs under a profiler, which costs it half its speed."""

    @property
    def data(self) -> Path:
        """Where the contender keeps its state, and nothing else."""
        return self.folder / "data"

    def environment(self) -> dict[str, str]:
        """The caller's without what would steer a contender, and with compiled modules.

        Nobody runs a service that compiles its libraries at each start; whether this shell or this
        environment keeps bytecode must not decide a race.
        """
        kept = part_environment(os.environ)
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        return {**kept, "PYTHONPYCACHEPREFIX": str(self.stack.directory.parent / "bytecode")}


@dataclass(frozen=True, slots=True)
class Command:
    """A process to run from the project's root."""

    argv: tuple[str, ...]
    env: dict[str, str]


class Contender(ABC):
    """One way to do the job. One object per heat."""

    name: str
    says: str
    """What it is, for the table."""
    module: str | None
    """What Python imports first: compiled before the first heat. None for another language."""

    def __init__(self, heat: Heat) -> None:
        self.heat = heat
        self.stack = heat.stack

    @classmethod
    def launcher(cls, say: Callable[[str], None]) -> tuple[str, ...]:
        """The beginning of its command line, installed where that takes something.

        Raises:
            MissingError: It cannot run on this machine.
        """
        del say
        return (sys.executable,)

    @abstractmethod
    def prepare(self) -> Command:
        """Makes its topics and databases; what to start."""

    @abstractmethod
    def outputs(self) -> tuple[str, str, str]:
        """Its topics of accepted, late and malformed records."""

    @abstractmethod
    def finished(self, expected: Tally) -> bool:
        """Whether everything is done and durable, by its own means. Asked many times a second."""

    @abstractmethod
    def tell(self) -> Tally:
        """What came of it; asked once, while it still runs."""

    def clean(self) -> None:
        """Removes what the next heat does not need."""
        self.stack.drop(*self.outputs())

    def from_outputs(self) -> Tally:
        """Accepted, late and malformed, counted in the output topics themselves."""
        accepted, review, dead = self.outputs()
        tally = Tally()
        for _, value in self.stack.read(accepted):
            event = _JSON.decode(value or b"").event
            tally.ids = (tally.ids + int(event.event_id.replace("-", ""), 16)) % ID_MODULUS
            tally.accepted += 1
        tally.late = sum(1 for _ in self.stack.read(review))
        tally.malformed = sum(1 for _ in self.stack.read(dead))
        return tally


def three(prefix: str) -> tuple[str, str, str]:
    """Output topics of a contender that names them itself."""
    return f"{prefix}.accepted", f"{prefix}.review", f"{prefix}.dead"


class _Named(msgspec.Struct):
    event_id: str


class _Output(msgspec.Struct):
    event: _Named


_JSON: Final = msgspec.json.Decoder(_Output)
