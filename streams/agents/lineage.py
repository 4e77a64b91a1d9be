"""What the ledger knows of logs, asked from the threads that recover partitions.

How a topic came to its partitions never changes while it has that count, so it is asked once: a
partition may also move here while the ledger is away.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from streams.core.growth import Inherited, Life, inherited
from streams.core.identity import log_uuid, topic_id_of
from streams.engine.before import Earlier, Told
from streams.engine.layout import Layout, ungrown
from streams.engine.log import LogId
from streams.ports import LedgerUnavailableError

ANSWER_TIMEOUT_S: Final = 10.0
_T = TypeVar("_T")


class LogsLedger(Protocol):
    """Where logs are known."""

    def position(self, log_id: str, partition: int) -> Coroutine[Any, Any, int]:
        """The offset up to which the ledger holds a partition's facts; -1 for none."""
        ...

    def lives(self, root: str, partitions: int) -> Coroutine[Any, Any, tuple[Life, ...]]:
        """The lives of a topic up to one of them, the first life first."""
        ...


class Lineage:
    """Answers of one worker. Methods block, and may be called from any thread but the loop's."""

    def __init__(self, ledger: LogsLedger, loop: asyncio.AbstractEventLoop) -> None:
        self._ledger = ledger
        self._loop = loop
        self._lives: dict[str, tuple[Life, ...]] = {}
        self._roots: dict[str, str] = {}

    def acknowledged(self, log: LogId) -> int:
        """What the ledger has of a log; -1 when it does not know it or cannot say now."""
        held = self._ask(self._ledger.position(log_uuid(log.topic_id), log.partition))
        return -1 if held is None else held

    def layout(self, life_id: str, partitions: int, partition: int) -> Layout | None:
        """How a topic came to a partition; None when the ledger cannot say now."""
        root = log_uuid(life_id)
        lives = self._lives.get(root)
        if lives is None or lives[-1].partitions != partitions:
            lives = self._ask(self._ledger.lives(root, partitions))
        if lives is None:
            return None
        if lives and lives[-1].partitions == partitions:
            self._lives[root] = lives
            self._roots.update((log.log_id, root) for log in lives[-1].logs)
        return laid_out(lives, life_id, partitions, partition)

    def before(self, log: LogId) -> Told | None:
        """Earlier logs that one goes on from; None when the ledger cannot say now."""
        own = log_uuid(log.topic_id)
        lives = self._lives.get(self._roots.get(own, own), ())
        return told_of(
            lives,
            log.partition,
            lambda one: self._ask(self._ledger.position(one.log_id, one.partition)),
        )

    def _ask(self, question: Coroutine[Any, Any, _T]) -> _T | None:
        answer = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return answer.result(ANSWER_TIMEOUT_S)
        except (LedgerUnavailableError, TimeoutError):
            answer.cancel()
            return None


def laid_out(lives: Sequence[Life], life_id: str, partitions: int, partition: int) -> Layout:
    """How a topic that has so many partitions now came to one of them.

    Args:
        lives: as the ledger knows them, the present one last; empty when it was told of none: the
            first facts will tell it, with this very count.
        life_id: the broker's id of the present one.
        partitions: how many it has by the broker.
        partition: one of them.
    """
    if not lives:
        return ungrown(life_id, partitions, partition)
    life = lives[-1]
    if life.partitions != partitions:
        return ungrown(life_id, life.partitions, partition)
    log_id = life.log_of(partition).log_id
    return Layout(
        life_id,
        life_id if log_id == log_uuid(life_id) else topic_id_of(log_id),
        partitions,
        life.counts(partition),
        frozenset(partition % log.partitions for log in life.logs),
    )


def told_of(
    lives: Sequence[Life], partition: int, position: Callable[[Inherited], int | None]
) -> Told | None:
    """What a partition of the present life has to remember; None when a position is not known."""
    told = {}
    for one in inherited(lives, partition):
        held = position(one)
        if held is None:
            return None
        last = held if one.last is None else one.last
        last = last if one.lives else min(last, held)
        told[topic_id_of(one.log_id)] = Earlier(one.partition, last, held, one.lives)
    return told
