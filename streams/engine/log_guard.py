"""Whose log is this? The broker's answer, asked before state is used and after each fetch."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException, TopicCollection

from streams.engine.errors import LogChanged, LogUnknown, LogUnverified
from streams.engine.kafka_faults import error_of, is_passing, is_unknown_topic, text_of
from streams.engine.log import LogId

_RETRY_PAUSE_S: Final = 0.2
_REQUEST_TIMEOUT_S: Final = 10.0

Seconds = Callable[[], float]
"""A clock in seconds that also counts while the machine is suspended."""


class TopicAdmin(Protocol):
    """The part of confluent-kafka's `AdminClient` that is used here."""

    # The library's own signature says no more than this.
    def describe_topics(self, topics: TopicCollection, **kwargs: Any) -> dict[str, "Future[Any]"]:
        """Start asking about topics; one future per name."""


@dataclass(frozen=True, slots=True)
class TopicLife:
    """One life of a topic."""

    topic_id: str
    """Id the broker gave it."""
    partitions: int
    """How many partitions it has."""


class TopicInquiry:
    """Asks the broker for the present life of a topic."""

    def __init__(self, admin: TopicAdmin, clock: Seconds, *, patience_s: float) -> None:
        """Ask through an admin client.

        Args:
            admin: may be shared by threads.
            clock: seconds.
            patience_s: how long "unknown topic" or silence is asked again before it is believed;
                a broker that just started says "unknown" for a moment.
        """
        self._admin = admin
        self._clock = clock
        self._patience_s = patience_s

    def ask(self, topic: str) -> "Future[Any]":
        """Start asking; the answer is read by `verify`."""
        answers = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=_REQUEST_TIMEOUT_S
        )
        return answers[topic]

    def life(self, topic: str) -> TopicLife:
        """The topic's present life. Blocks.

        Raises:
            LogUnknown: the broker does not know the topic.
            KafkaException: the broker cannot be asked; trying later may help.
        """
        deadline = self._clock() + self._patience_s
        pause = threading.Event()
        while True:
            try:
                return _life(self.ask(topic).result())
            except KafkaException as exception:
                error = error_of(exception)
                if not is_unknown_topic(error) or self._clock() >= deadline:
                    raise self._unknown(topic, exception) from exception
            pause.wait(_RETRY_PAUSE_S)

    async def verify(self, log: LogId, life: TopicLife, question: "Future[Any]") -> None:
        """Await the answer to a question asked after the fetch, and compare.

        The old id, seen after the fetch, proves that the fetch was from the old log; the old count
        that its keys were at home where the table thinks.

        Args:
            log: the log that was fetched, for texts.
            life: its topic's, as it was when the table was read.
            question: as `ask` gave it.

        Raises:
            LogChanged: the topic is another one by now.
            LogUnverified: no answer in time, or the topic has another number of partitions.
        """
        deadline = self._clock() + self._patience_s
        while True:
            try:
                found = _life(await asyncio.wrap_future(question))
            except KafkaException as exception:
                error = error_of(exception)
                passing = is_passing(error) or is_unknown_topic(error)
                if not passing or self._clock() >= deadline:
                    raise LogUnverified(
                        f"{log}: the broker did not say whose log this is: {text_of(error)}"
                    ) from exception
            else:
                if found.topic_id != life.topic_id:
                    raise LogChanged(
                        f"{log}: the topic was deleted and created again while it was read; it "
                        f"has the id {found.topic_id} now"
                    )
                if found.partitions != life.partitions:
                    raise LogUnverified(
                        f"{log}: the topic has {found.partitions} partitions by now, it had "
                        f"{life.partitions}: keys are at home elsewhere"
                    )
                return
            await asyncio.sleep(_RETRY_PAUSE_S)
            question = self.ask(log.topic)

    def _unknown(self, topic: str, exception: KafkaException) -> Exception:
        if not is_unknown_topic(error_of(exception)):
            return exception
        return LogUnknown(
            f"topic {topic} does not exist on the broker: create the topics, restart the worker"
        )


def _life(description: Any) -> TopicLife:
    return TopicLife(str(description.topic_id), len(description.partitions))
