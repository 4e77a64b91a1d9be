"""What the operator wants of a stack: a file that commands write and the supervisor follows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from sandbox.paths import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts that should run, and how."""

    workers: int = 1
    stripe: str | None = None
    """API base of an external Stripe; None runs the stand-in."""
    stripe_key: str | None = None
    """Key for the external Stripe."""
    shift_clock: bool = False
    held: tuple[str, ...] = ()
    """Parts stopped on purpose until they are started again."""

    def hold(self, part: str) -> Wanted:
        """The same, with one more part stopped."""
        return replace(self, held=tuple(sorted({*self.held, part})))

    def release(self, part: str) -> Wanted:
        """The same, with the part running again."""
        return replace(self, held=tuple(each for each in self.held if each != part))


def write(file: Path, wanted: Wanted) -> None:
    """Writes it for the supervisor to follow within a fraction of a second."""
    write_json(file, asdict(wanted))


def read(file: Path) -> Wanted | None:
    """What is wanted, or None where nothing ever ran."""
    value = read_json(file)
    return None if value is None else Wanted(**{**value, "held": tuple(value["held"])})


def differences(running: Wanted, asked: Wanted, typed: Callable[[str], str]) -> list[str]:
    """How a running stack differs from what was asked, one line each, with what to do.

    Args:
        running: what runs.
        asked: what was asked.
        typed: what people type for a command of this sandbox.
    """
    lines = []
    if running.workers != asked.workers:
        lines.append(
            f"workers: {running.workers} run, {asked.workers} asked; "
            f"change it with `{typed(f'workers {asked.workers}')}`"
        )
    for name, has, wants in (
        ("stripe", running.stripe or "stand-in", asked.stripe or "stand-in"),
        ("shifted clock", running.shift_clock, asked.shift_clock),
    ):
        if has != wants:
            lines.append(f"{name}: {has} runs, {wants} asked; `{typed('down')}` first to change it")
    lines += [
        f"{part}: stopped on purpose; `{typed(f'start {part}')}` starts it again"
        for part in running.held
    ]
    return lines
