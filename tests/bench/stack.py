"""The benchmark's own broker and database: a sandbox that lives as long as the race."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg
import requests
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from psycopg import sql
from psycopg.conninfo import make_conninfo

from streams import topics
from tests.support.waiting import NotInTimeError, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.bench.workload import Message

PARTITIONS: Final = 12
METERS: Final = Path(__file__).with_name("meters.toml")
ROOT: Final = METERS.parent.parent.parent
LEDGER_TEMPLATE: Final = "ledger"
_TIMEOUT_S: Final = 60.0
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as the client ships it


class BenchError(Exception):
    """The race cannot go on; the text says what failed and where its log is."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A running sandbox without workers, its capture stopped: nothing else uses the machine."""

    directory: Path
    facts: dict[str, Any]
    """Content of `sandbox.json`."""
    admin: AdminClient
    """One for all questions: a client that is dropped cancels what it was asked."""

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return str(self.facts["kafka_bootstrap"])

    # -- topics ------------------------------------------------------------------------------------

    def renew(self, *names: str) -> None:
        """Makes the topics anew and empty, with the configuration the product gives its own."""
        admin = self.admin
        known = {topic.name: topic for topic in topics.TOPICS}
        stale = set(names) & set(admin.list_topics(timeout=_TIMEOUT_S).topics)
        if stale:
            for future in admin.delete_topics(list(stale)).values():
                future.result(_TIMEOUT_S)
            wait_for(
                "deleted topics to be gone",
                lambda: not stale & set(admin.list_topics(timeout=_TIMEOUT_S).topics),
            )
        wanted = [
            NewTopic(name, PARTITIONS, 1, config=known[name].config() if name in known else {})
            for name in names
        ]
        wait_for("topics to be created", lambda: _created(admin, wanted))
        for name in names:
            self.ends(name)  # answers once every partition has a leader

    def drop(self, *names: str) -> None:
        """Deletes topics, so that the broker has less to do for the next contender."""
        for future in self.admin.delete_topics(list(names)).values():
            try:
                future.result(_TIMEOUT_S)
            except KafkaException as error:
                raise BenchError(f"topics: {error}") from error

    def topic_names(self, part: str) -> list[str]:
        """Topics with this text in their name."""
        return [name for name in self.admin.list_topics(timeout=_TIMEOUT_S).topics if part in name]

    def ends(self, topic: str) -> list[int]:
        """End offset of every partition."""
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        found: list[list[int]] = []
        wait_for(f"{topic} to say how long it is", lambda: _listed(self.admin, places, found))
        return found[0]

    def watcher(self, names: Iterable[str]) -> Callable[[], int]:
        """A question that can be asked often: how many records stand in the topics by now."""
        places = [TopicPartition(name, number) for name in names for number in range(PARTITIONS)]
        found: list[list[int]] = [[]]

        def count() -> int:
            _listed(self.admin, places, found)
            return sum(found[0])

        return count

    def produce(self, topic: str, records: Iterable[Message]) -> None:
        """Writes records as capture does: by murmur2 of the key."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 20,
                "log_level": 3,
            }
        )
        failed: Counter[str] = Counter()

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failed[str(error)] += 1

        for record in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        record.value,
                        record.key,
                        headers=list(record.headers),
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush(_TIMEOUT_S)
        if failed:
            raise BenchError(f"{topic}: not delivered: {dict(failed)}")

    def read(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Key and value of every record that stands in the topic now."""
        ends = self.ends(topic)
        left = {number: end for number, end in enumerate(ends) if end}
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "bench-reader", "log_level": 3}
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        end_s = time.monotonic() + _TIMEOUT_S
        try:
            while left:
                for message in consumer.consume(5_000, 0.05):
                    partition, offset = message.partition(), message.offset()
                    if message.error() is not None or partition is None or offset is None:
                        raise BenchError(f"{topic}: {message.error()}")
                    yield message.key(), message.value()
                    if offset + 1 >= ends[partition]:
                        left.pop(partition, None)
                if time.monotonic() > end_s:
                    raise BenchError(f"{topic}: could not be read within {_TIMEOUT_S:.0f} s")
        finally:
            consumer.close()

    def committed(self, group: str, topic: str) -> int:
        """Sum of the offsets that a group has committed."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 3}
        )
        try:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            return sum(max(p.offset, 0) for p in consumer.committed(places, timeout=_TIMEOUT_S))
        finally:
            consumer.close()

    # -- ledger ------------------------------------------------------------------------------------

    def fresh_ledger(self, name: str) -> tuple[str, str]:
        """An empty ledger with the meters in it.

        Returns:
            How a worker reaches it, and how its owner does.
        """
        wait_for("a copy of the empty ledger", lambda: self._copy_ledger(name))
        facts = self.facts
        return (
            make_conninfo(facts["ledger_dsn"], dbname=name),
            make_conninfo(facts["ledger_owner_dsn"], dbname=name),
        )

    def drop_ledger(self, name: str) -> None:
        """Removes a ledger again."""
        with psycopg.connect(self.facts["postgres_dsn"], autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def _copy_ledger(self, name: str) -> bool:
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(LEDGER_TEMPLATE)
        )
        with psycopg.connect(self.facts["postgres_dsn"], autocommit=True) as connection:
            try:
                connection.execute(copy)
            except psycopg.errors.ObjectInUse:
                return False  # the sandbox looks into the ledger now and then
        return True


@contextmanager
def running(directory: Path, *, keep: bool) -> Iterator[Stack]:
    """A sandbox with the benchmark's meters, without capture; stopped at the end.

    Args:
        directory: where it lives.
        keep: whether its data and logs stay.

    Raises:
        BenchError: it did not start; its own lines have said why.
    """
    sandbox("up", "--workers", "0", directory=directory)
    try:
        facts = msgspec.json.decode((directory / "sandbox.json").read_bytes(), type=dict[str, Any])
        _stop_capture(facts["connect_url"])
        # It listens for nobody here, and a ledger that somebody is in cannot be copied.
        sandbox("stop", "webhook", directory=directory)
        command = (sys.executable, "-m", "streams.cli.main", "meters", "apply", str(METERS))
        done = subprocess.run(
            (*command, "--dir", str(directory)), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BenchError(f"meters.toml was not applied: {done.stdout}{done.stderr}")
        bootstrap = str(facts["kafka_bootstrap"])
        yield Stack(directory, facts, AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}))
    finally:
        sandbox("down", *(() if keep else ("--wipe",)), directory=directory)


def sandbox(*arguments: str, directory: Path) -> None:
    """Runs `python -m sandbox …`.

    Raises:
        BenchError: with what it said.
    """
    command = (sys.executable, "-m", "sandbox", *arguments, "--dir", str(directory))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = f"{done.stdout}{done.stderr}"
        raise BenchError(f"sandbox {arguments[0]} ended with {done.returncode}:\n{said}")


def _stop_capture(connect_url: str) -> None:
    """Nothing but the workload may reach the topic, no canary either."""
    for name in requests.get(f"{connect_url}/connectors", timeout=_TIMEOUT_S).json():
        url = f"{connect_url}/connectors/{name}/stop"
        requests.put(url, timeout=_TIMEOUT_S).raise_for_status()


def wait_for(what: str, condition: Callable[[], bool], deadline_s: float = _TIMEOUT_S) -> None:
    """Waits for a condition.

    Raises:
        BenchError: it did not come true in time.
    """
    try:
        until(what, condition, deadline_s)
    except NotInTimeError as error:
        raise BenchError(str(error)) from error


def _created(admin: AdminClient, wanted: list[NewTopic]) -> bool:
    """Whether all of them are there; a topic of that name may still be on its way out."""
    present = set(admin.list_topics(timeout=_TIMEOUT_S).topics)
    missing = [topic for topic in wanted if topic.topic not in present]
    if missing:
        for future in admin.create_topics(missing).values():
            try:
                future.result(_TIMEOUT_S)
            except KafkaException:
                return False
    return not missing


def _listed(admin: AdminClient, places: list[TopicPartition], found: list[list[int]]) -> bool:
    """Puts the end offsets of the places into `found`; not while a topic is being made."""
    answer = admin.list_offsets(dict.fromkeys(places, _LATEST))
    try:
        ends = {(p.topic, p.partition): f.result(_TIMEOUT_S).offset for p, f in answer.items()}
    except KafkaException:
        return False
    found.insert(0, [ends[place.topic, place.partition] for place in places])
    del found[1:]
    return True
