"""Whose log, whose partition: the questions a chunk asks before it writes."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streams.engine.errors import Fenced, LogChanged, LogUnknown, LogUnverified
from streams.engine.fence import Fence
from streams.engine.log_guard import TopicInquiry, TopicLife
from tests.unit.engine.conftest import LOG

UNKNOWN = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
LIFE = TopicLife(LOG.topic_id, 12)
DOWN = KafkaException(KafkaError(KafkaError._TRANSPORT))
FORBIDDEN = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class Clock:
    """Moves a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class Broker:
    """Answers questions about topics, one answer after the other, the last one for ever."""

    def __init__(self, *answers: str | KafkaException) -> None:
        self.answers = list(answers)

    def describe_topics(
        self,
        topics: TopicCollection,  # noqa: ARG002  # as the client calls it
        **_: Any,
    ) -> dict[str, "Future[Any]"]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        future: Future[Any] = Future()
        if isinstance(answer, str):
            future.set_result(SimpleNamespace(topic_id=answer, partitions=[0] * 12))
        else:
            future.set_exception(answer)
        return {LOG.topic: future}


def inquiry(*answers: str | KafkaException, patience_s: float = 5) -> TopicInquiry:
    return TopicInquiry(Broker(*answers), Clock(), patience_s=patience_s)


@pytest.mark.parametrize("answers", [("life-1",), (UNKNOWN, "life-1"), (DOWN, UNKNOWN, "life-1")])
async def test_the_same_log_is_verified_also_after_a_moment_of_silence(
    answers: tuple[str | KafkaException, ...],
) -> None:
    asked = inquiry(*answers)
    await asked.verify(LOG, LIFE, asked.ask(LOG.topic))


@pytest.mark.parametrize("answers", [("life-2",), (DOWN, "life-2")])
async def test_another_life_of_the_topic_is_never_read_on(
    answers: tuple[str | KafkaException, ...],
) -> None:
    asked = inquiry(*answers)
    with pytest.raises(LogChanged, match="id life-2 now"):
        await asked.verify(LOG, LIFE, asked.ask(LOG.topic))


async def test_a_topic_that_grew_meanwhile_is_not_written_for() -> None:
    asked = inquiry("life-1")
    with pytest.raises(LogUnverified, match="12 partitions by now, it had 6"):
        await asked.verify(LOG, TopicLife(LOG.topic_id, 6), asked.ask(LOG.topic))


@pytest.mark.parametrize("answer", [UNKNOWN, DOWN, FORBIDDEN])
async def test_no_answer_means_nothing_may_be_written(answer: KafkaException) -> None:
    asked = inquiry(answer, patience_s=2)
    with pytest.raises(LogUnverified):
        await asked.verify(LOG, LIFE, asked.ask(LOG.topic))


def test_unknown_is_believed_only_after_a_while() -> None:
    assert inquiry(UNKNOWN, "life-1").life(LOG.topic).topic_id == "life-1"
    with pytest.raises(LogUnknown, match="create the topics"):
        inquiry(UNKNOWN, patience_s=2).life(LOG.topic)
    with pytest.raises(KafkaException):
        inquiry(DOWN).life(LOG.topic)


class Asked:
    """A commit that answers with errors first."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))


def fence(commit: Callable[[], None], *, age_s: float, session_s: float = 10) -> Fence:
    clock = Clock()
    clock.now_s = 100
    return Fence(clock, 101 - age_s, session_s=session_s, commit=commit, what="usage[3]")


async def test_a_young_chunk_does_not_ask() -> None:
    commit = Asked()
    await fence(commit, age_s=4).ask()
    assert commit.calls == 0


async def test_an_old_chunk_of_a_living_member_goes_on() -> None:
    commit = Asked(KafkaError.REBALANCE_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
    await fence(commit, age_s=6).ask()
    assert commit.calls == 3


@pytest.mark.parametrize(
    "code",
    [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_INSTANCE_ID],
)
async def test_an_old_chunk_of_a_member_that_was_replaced_is_fenced(code: int) -> None:
    commit = Asked(code)
    with pytest.raises(Fenced, match=r"usage\[3\]"):
        await fence(commit, age_s=6).ask()
    assert commit.calls == 1


async def test_a_group_that_never_answers_fences_too() -> None:
    with pytest.raises(Fenced):
        await fence(Asked(*[KafkaError.REBALANCE_IN_PROGRESS] * 99), age_s=6, session_s=3).ask()
