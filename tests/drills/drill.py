"""A drill: a test that breaks the stack on purpose, with a name that stays.

Name and description stand in the mark, `@pytest.mark.drill(name=…, about=…)`; a drill without them
is called after its function and described by the first line of its docstring, or of its module's.
A parametrized drill is one for each parameter. What takes too long for every change is marked
`long` and left to the full run; what takes as long as one likes says `alone=True` in its mark, and
runs only by its name.
"""

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class DrillsError(Exception):
    """The drills cannot be told apart: two have one name, or a name is none."""


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill."""

    name: str
    about: str
    long: bool
    """Whether it is left out where every change is tested."""
    alone: bool = False
    """Whether it runs only where it is asked for by its name, as it takes as long as one likes."""

    @property
    def size(self) -> str:
        """Where it runs: `CI` on every change, `long` in the full run, `alone` by its name."""
        return "alone" if self.alone else "long" if self.long else "CI"


def drill_of(item: pytest.Item) -> Drill | None:
    """The drill that a test is; None for a test that breaks nothing.

    Raises:
        DrillsError: its name is none.
    """
    mark = next(item.iter_markers("drill"), None)
    if mark is None or not isinstance(item, pytest.Function):
        return None
    given = mark.kwargs.get("name", item.originalname.removeprefix("test_"))
    parameters = item.name.removeprefix(item.originalname).strip("[]")
    name = "-".join(filter(None, (given, parameters))).replace("_", "-").lower()
    if NAME.fullmatch(name) is None:
        raise DrillsError(f"{item.nodeid}: {name!r} is no name; give it one in its mark")
    about = mark.kwargs.get("about") or _first_line(item.function) or _first_line(item.module)
    long = item.get_closest_marker("long") is not None
    return Drill(name, about, long, alone=bool(mark.kwargs.get("alone", False)))


def drills_of(items: Iterable[pytest.Item]) -> dict[str, tuple[Drill, pytest.Item]]:
    """The drills among tests, by name, in their order.

    Raises:
        DrillsError: two have the same name, or one has none.
    """
    found: dict[str, tuple[Drill, pytest.Item]] = {}
    for item in items:
        drill = drill_of(item)
        if drill is None:
            continue
        if drill.name in found:
            other = found[drill.name][1].nodeid
            raise DrillsError(f"{item.nodeid} and {other} are both called {drill.name!r}")
        found[drill.name] = (drill, item)
    return found


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]
