"""How logs came to be, as the ledger knows it: asked on the worker's loop from another thread."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from streams.agents import lineage
from streams.agents.lineage import Lineage, laid_out, told_of
from streams.core.growth import Inherited, Life, Log, grown_log_id
from streams.core.identity import log_uuid, topic_id_of
from streams.engine.before import Earlier, Told
from streams.engine.layout import Layout, ungrown
from streams.engine.log import LogId
from streams.ports import LedgerUnavailableError
from tests.support.waiting import until

FIRST_ID, SECOND_ID = "0Iw2YxKPTZqz4yIYwHZ/Gw", "4Iw2YxKPTZqz4yIYwHZ+Gw"
FIRST, SECOND = log_uuid(FIRST_ID), log_uuid(SECOND_ID)
GROWN = grown_log_id(FIRST, 2, 4)
GROWN_ID = topic_id_of(GROWN)
LIFE = Life((Log(FIRST, 0, 2), Log(GROWN, 2, 4, (10, 20))))
AFTER = Life((Log(SECOND, 0, 4),))
TOPIC = "usage.events"


class Ledger:
    """What it was told of logs, and how often it was asked."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Life, ...]] = {FIRST: (LIFE,)}
        self.positions: dict[tuple[str, int], int] = {}
        self.away = self.slow = False
        self.asked: list[str] = []
        self.threads: set[int] = set()

    async def position(self, log_id: str, partition: int) -> int:
        await self._answers("position")
        return self.positions.get((log_id, partition), -1)

    async def lives(self, root: str, partitions: int) -> tuple[Life, ...]:
        await self._answers(f"lives of {partitions}")
        return self.known.get(root, ())

    async def _answers(self, question: str) -> None:
        self.asked.append(question)
        self.threads.add(threading.get_ident())
        if self.away:
            raise LedgerUnavailableError("connection refused")
        if self.slow:
            await asyncio.sleep(3_600)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@contextmanager
def on_a_loop(ledger: Ledger) -> Iterator[Lineage]:
    """The loop runs on its own thread, as a worker's does beside the recovering ones."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Lineage(ledger, loop)
        assert ledger.threads <= {thread.ident}
        until("questions that were given up are cancelled", lambda: not asyncio.all_tasks(loop))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def asked(ledger: Ledger) -> Iterator[Lineage]:
    with on_a_loop(ledger) as made:
        yield made


def silent(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    ledger.away, ledger.slow = how == "away", how == "slow"
    monkeypatch.setattr(lineage, "ANSWER_TIMEOUT_S", 0.05 if how == "slow" else 10.0)


# -- positions -------------------------------------------------------------------------------------


def test_what_the_ledger_has_of_a_log_is_asked_each_time(ledger: Ledger, asked: Lineage) -> None:
    log = LogId(TOPIC, FIRST_ID, 1)
    assert asked.acknowledged(log) == -1
    ledger.positions[FIRST, 1] = 7
    assert asked.acknowledged(log) == 7
    assert asked.acknowledged(LogId(TOPIC, FIRST_ID, 0)) == -1


@pytest.mark.parametrize("how", ["away", "slow"])
def test_a_silent_ledger_says_nothing(
    ledger: Ledger, asked: Lineage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    assert asked.layout(FIRST_ID, 4, 3) is not None
    silent(ledger, monkeypatch, how)
    assert asked.acknowledged(LogId(TOPIC, FIRST_ID, 1)) == -1
    assert asked.layout(SECOND_ID, 4, 3) is None
    assert asked.before(LogId(TOPIC, GROWN_ID, 3)) is None


# -- layouts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (0, Layout(FIRST_ID, FIRST_ID, 4, ((0, 2), (10, 4)), frozenset({0}))),
        (1, Layout(FIRST_ID, FIRST_ID, 4, ((0, 2), (20, 4)), frozenset({1}))),
        (2, Layout(FIRST_ID, GROWN_ID, 4, ((0, 4),), frozenset({0, 2}))),
        (3, Layout(FIRST_ID, GROWN_ID, 4, ((0, 4),), frozenset({1, 3}))),
    ],
)
def test_each_partition_of_a_grown_topic_has_its_layout(
    asked: Lineage, partition: int, expected: Layout
) -> None:
    assert asked.layout(FIRST_ID, 4, partition) == expected


def test_either_alphabet_of_a_topics_id_is_the_same_log(ledger: Ledger) -> None:
    """Clients differ in it; what they call the topic by stays as they say."""
    other = FIRST_ID.replace("/", "_")
    layout = laid_out((LIFE,), other, 4, 1)
    assert (layout.life_id, layout.topic_id, layout.begun_with) == (other, other, 2)


def test_an_unknown_log_never_grew(ledger: Ledger, asked: Lineage) -> None:
    assert asked.layout(SECOND_ID, 4, 3) == ungrown(SECOND_ID, 4, 3)
    ledger.known[SECOND] = (LIFE, AFTER)
    assert asked.before(LogId(TOPIC, SECOND_ID, 3)) == {}, "nothing was asked of it yet"
    asked.layout(SECOND_ID, 4, 3)
    assert asked.before(LogId(TOPIC, SECOND_ID, 3)) != {}, "what is unknown is asked again"


def test_how_it_came_to_a_count_is_asked_once(ledger: Ledger, asked: Lineage) -> None:
    layouts = [asked.layout(FIRST_ID, 4, partition) for partition in range(4)]
    assert ledger.asked == ["lives of 4"]
    ledger.away = True
    assert [asked.layout(FIRST_ID, 4, partition) for partition in range(4)] == layouts
    assert asked.layout(FIRST_ID, 8, 0) is None, "of another count it knows nothing"
    ledger.away = False
    larger = Log(grown_log_id(FIRST, 4, 8), 4, 8, (1, 2, 3, 4))
    ledger.known[FIRST] = (Life((*LIFE.logs, larger)),)
    layout = asked.layout(FIRST_ID, 8, 7)
    assert layout is not None
    assert layout.origins == {1, 3, 7}
    asked.layout(FIRST_ID, 8, 0)
    assert ledger.asked == ["lives of 4", "lives of 8", "lives of 8"]


@pytest.mark.parametrize("partitions", [2, 8])
def test_a_count_that_the_ledger_does_not_know_is_answered_with_what_it_knows(
    ledger: Ledger, asked: Lineage, partitions: int
) -> None:
    for _ in range(2):
        layout = asked.layout(FIRST_ID, partitions, partitions - 1)
        assert layout is not None
        assert layout.partitions == 4
    assert ledger.asked == [f"lives of {partitions}"] * 2, "somebody may make it known meanwhile"


# -- what is remembered ----------------------------------------------------------------------------


def told(ledger: Ledger, topic_id: str, partition: int, root_id: str = FIRST_ID) -> Told | None:
    with on_a_loop(ledger) as asked:
        asked.layout(root_id, 4, partition)
        return asked.before(LogId(TOPIC, topic_id, partition))


@pytest.mark.parametrize("held", [-1, 4, 9, 50])
def test_of_a_log_that_lives_on_everything_is_remembered_up_to_where_keys_left(
    ledger: Ledger, held: int
) -> None:
    """Whether the ledger has it yet or not: it is counted there, or will be."""
    ledger.positions[FIRST, 1] = held
    assert told(ledger, GROWN_ID, 3) == {FIRST_ID: Earlier(1, 19, held, lives=True)}


def test_a_partition_that_was_there_remembers_itself_alone(ledger: Ledger) -> None:
    assert told(ledger, FIRST_ID, 1) == {}
    assert "position" not in ledger.asked


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, {GROWN_ID: Earlier(3, -1, -1), FIRST_ID: Earlier(1, -1, -1)}),
        ({GROWN: 5, FIRST: 12}, {GROWN_ID: Earlier(3, 5, 5), FIRST_ID: Earlier(1, 12, 12)}),
        ({GROWN: 5, FIRST: 40}, {GROWN_ID: Earlier(3, 5, 5), FIRST_ID: Earlier(1, 19, 40)}),
    ],
)
def test_of_a_life_that_ended_what_the_ledger_holds_is_remembered(
    ledger: Ledger, held: dict[str, int], expected: Told
) -> None:
    ledger.known[SECOND] = (LIFE, AFTER)
    ledger.positions = {(log, 3 if log == GROWN else 1): last for log, last in held.items()}
    before = told(ledger, SECOND_ID, 3, SECOND_ID)
    assert before == expected
    assert list(before or ()) == [GROWN_ID, FIRST_ID], "the latest first"


def test_several_lives_and_a_growth_of_the_last(ledger: Ledger) -> None:
    grown = grown_log_id(SECOND, 2, 4)
    now = Life((Log(SECOND, 0, 2), Log(grown, 2, 4, (7, 8))))
    ledger.known[SECOND] = (Life((Log(FIRST, 0, 2),)), now)
    ledger.positions = {(FIRST, 1): 30, (SECOND, 1): 2}
    assert told(ledger, topic_id_of(grown), 3, SECOND_ID) == {
        SECOND_ID: Earlier(1, 7, 2, lives=True),
        FIRST_ID: Earlier(1, 30, 30),
    }


def test_a_position_that_is_not_known_leaves_all_of_it_unknown() -> None:
    known: dict[str, int | None] = {SECOND: 5, GROWN: 5, FIRST: None}
    ask: Callable[[Inherited], int | None] = lambda one: known[one.log_id]  # noqa: E731
    assert told_of((LIFE, AFTER), 3, ask) is None
    known[FIRST] = 5
    assert told_of((LIFE, AFTER), 3, ask) is not None
    assert told_of((), 3, ask) == {}
