"""One question of the doctor's, and what it comes to.

A check gives troubles; each says what was seen, why that matters, and a fix to paste. A check that
cannot be made says so by name: silence would look like health.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from streams.cli.boundary import explain
from streams.cli.errors import UNAVAILABLE, UnavailableError

Where = Literal["shell", "service's database", "ledger", "settings", "stripe"]
"""Where a fix is pasted: a shell, a superuser's psql, `tailrace.toml` or the environment, or
Stripe's own interface."""
State = Literal["ok", "trouble", "not made"]
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Fix:
    """What to paste, and where."""

    where: Where
    paste: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is not as it must be."""

    what: str
    why: str
    fix: Fix


class NotMadeError(Exception):
    """A check cannot be made here; the text says why. No trouble, and no health either."""


class AwayError(UnavailableError):
    """A neighbour does not answer, and what is typed about that is known here."""

    def __init__(self, what: str, *, fix: Fix, again: str) -> None:
        super().__init__(what, fix=fix.paste)
        self.paste = fix
        self.again = again
        """When what needs its answer can be asked again."""


def answers(_neighbour: object) -> Iterator[Trouble]:
    """No trouble: to have got hold of it is the check."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Check(Generic[P]):
    """One question."""

    name: str
    """Never changes its meaning: people and programs look for it."""
    good: str
    """What is so when there is no trouble."""
    look: Callable[[P], Iterable[Trouble]]
    reaches: str = ""
    """What this check is the first to talk to: no answer is its own trouble then, and its fix."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a check came to."""

    name: str
    state: State
    said: str
    """What is good, or why it was not made; of troubles the first."""
    troubles: tuple[Trouble, ...] = ()
    away: bool = False
    """Whether a service did not answer."""


_AWAY_WHY: Final = "nothing behind it can be looked at, and nothing flows through it"


def made(check: Check[P], patient: P, look_up: str) -> Result:
    """Makes a check. Whatever goes wrong in it is its result.

    Args:
        check: the question.
        patient: what it is asked about.
        look_up: what to type about a neighbour that does not answer.
    """
    try:
        troubles = tuple(check.look(patient))
    except NotMadeError as error:
        return Result(check.name, "not made", str(error))
    except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
        return _failed(check, error, look_up)
    if troubles:
        return Result(check.name, "trouble", troubles[0].what, troubles)
    return Result(check.name, "ok", check.good)


def _failed(check: Check[P], error: Exception, look_up: str) -> Result:
    shown = explain(error)
    away = shown.exit_code == UNAVAILABLE
    said = shown.what.splitlines()[0]
    known = error if isinstance(error, AwayError) else None
    if not (away and check.reaches):
        if known is not None:
            said = f"{said}; {known.again}"
        return Result(check.name, "not made", said, away=away)
    what = said if isinstance(error, UnavailableError) else f"{check.reaches}: {said}"
    trouble = Trouble(what, _AWAY_WHY, Fix("shell", look_up) if known is None else known.paste)
    return Result(check.name, "trouble", what, (trouble,), away=True)
