"""What happens to a stack during a drill, as it happens: who does something to it says so here.

Outside of a drill nobody listens and every call does nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.support.oracle import Verdict


class Progress(NamedTuple):
    """How far the usage of a test has come; events and units of its tenants."""

    expected_events: int
    expected_units: int
    events: int
    """Admitted into the ledger."""
    waiting: int
    """Units that the ledger has and Stripe has not: pending, held, ambiguous."""
    settled: int
    """Units that are at Stripe."""
    parked: int

    @property
    def pending(self) -> int:
        """Units that are recorded and not at Stripe, wherever they are on the way."""
        return self.expected_units - self.settled

    def __str__(self) -> str:
        return (
            f"{self.events} of {self.expected_events} events admitted, {self.pending} of "
            f"{self.expected_units} units pending ({self.waiting} of them in the ledger), "
            f"{self.parked} parked"
        )


class Moment(NamedTuple):
    """Something that was done or seen, so many seconds into the drill."""

    at_s: float
    what: str


class Failure(NamedTuple):
    """What of the failed state was counted, before anything was healed."""

    at_s: float
    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.number} {self.what}"


@dataclass(slots=True)
class Witness:
    """One drill, as it was observed."""

    failures: list[Failure] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    """What the drill itself has measured at its end, for its report."""
    actions: list[Moment] = field(default_factory=list)
    progress: list[tuple[float, Progress]] = field(default_factory=list)
    seeds: dict[str, int] = field(default_factory=dict)
    verdicts: dict[int, tuple[object, Verdict]] = field(default_factory=dict)
    """The last verdict on each books; the books themselves keep their id from being reused."""
    judges: dict[int, Callable[[], object]] = field(default_factory=dict)
    """Who can give a verdict on books that the drill itself has not come to judge."""
    began_s: float = field(default_factory=time.monotonic)

    @property
    def verdict(self) -> Verdict | None:
        """Over all books of the drill; None where the oracle did not run."""
        found = [verdict for _, verdict in self.verdicts.values()]
        return sum(found[1:], found[0]) if found else None

    def judge_the_rest(self) -> None:
        """Has the oracle speak on all books on which it has not: a failing drill has figures too.

        Raises:
            Exception: any, for instance because the stack is gone.
        """
        for identity, judge in list(self.judges.items()):
            if identity not in self.verdicts:
                judge()

    @property
    def at_s(self) -> float:
        return time.monotonic() - self.began_s

    @property
    def worst(self) -> tuple[float, Progress] | None:
        """When most was pending; the last of such moments, for it was the failure that kept it."""
        return max(self.progress, key=lambda seen: (seen[1].pending, seen[0]), default=None)


_LISTENING: Final[ContextVar[Witness | None]] = ContextVar("witness", default=None)


@contextmanager
def witnessed() -> Iterator[Witness]:
    """Listens until the end of the block."""
    witness = Witness()
    token = _LISTENING.set(witness)
    try:
        yield witness
    finally:
        _LISTENING.reset(token)


def did(what: str) -> None:
    """Somebody did something to the stack."""
    witness = _LISTENING.get()
    if witness is not None:
        witness.actions.append(Moment(witness.at_s, what))


def saw(progress: Progress, books: object, judge: Callable[[], object]) -> None:
    """Somebody looked how far the usage of some books is, which can be judged in that way."""
    witness = _LISTENING.get()
    if witness is None:
        return
    witness.judges[id(books)] = judge
    if [seen for _, seen in witness.progress[-2:]] == [progress, progress]:
        witness.progress.pop()  # of the same state its first and its last moment are enough
    witness.progress.append((witness.at_s, progress))


def seen(what: str, number: int) -> None:
    """The fault shows: so much is broken, and nothing has been healed yet.

    Raises:
        AssertionError: nothing is, so whatever comes next is no recovery.
    """
    assert number > 0, f"no failed state to recover from: {number} {what}"
    witness = _LISTENING.get()
    if witness is not None:
        failure = Failure(witness.at_s, number, what)
        witness.failures.append(failure)
        words = f"**seen before anything is healed: {failure}**"
        witness.actions.append(Moment(failure.at_s, words))


def proved(what: str) -> None:
    """Something was measured that belongs into the evidence."""
    witness = _LISTENING.get()
    if witness is not None:
        witness.proofs.append(what)


def seeded(name: str, seed: int) -> None:
    """Chance was used."""
    witness = _LISTENING.get()
    if witness is not None:
        witness.seeds[name] = seed


def judged(books: object, verdict: Verdict) -> None:
    """The oracle has spoken."""
    witness = _LISTENING.get()
    if witness is not None:
        witness.verdicts[id(books)] = (books, verdict)
        witness.actions.append(Moment(witness.at_s, f"the oracle: {verdict}"))
