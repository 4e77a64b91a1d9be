"""A source of its own on a real stack: outbox, slot, connector, topic, and what arrived there."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg
import requests
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from psycopg import sql

from connectors.apply import apply, start
from connectors.capture import Capture
from connectors.connect_client import ConnectClient, Waiting
from connectors.guard_findings import Start
from connectors.source_registry import identify
from connectors.source_settings import SourceSettings
from tests.integration.connectors.outbox import Outbox, dsn_of, install
from tests.support.live import LiveStack
from tests.support.waiting import until

PARTITIONS = 12
ARRIVE_WITHIN_S = 60.0


@dataclass(slots=True)
class Arrived:
    """Every record of the topic so far, read anew from its beginning."""

    consumer: Consumer
    records: list[Message] = field(default_factory=list)

    def read(self) -> None:
        found = self.consumer.consume(5000, timeout=0.5)
        faults = [message.error() for message in found if message.error()]
        if faults:
            raise RuntimeError(f"reading the topic: {faults[0]}")
        self.records += found

    def ids(self) -> Counter[str]:
        return Counter(header(record, "id") or "" for record in self.records)

    def await_ids(self, wanted: list[str]) -> None:
        """Wait until each of these identities has arrived at least once."""

        def all_there() -> bool:
            self.read()
            return set(wanted) <= set(self.ids())

        until(
            lambda: f"{len(set(wanted) - set(self.ids()))} of {len(wanted)} rows to arrive",
            all_there,
            ARRIVE_WITHIN_S,
        )


def header(record: Message, name: str) -> str | None:
    value = dict(record.headers() or [])[name]
    return value.decode() if isinstance(value, bytes) else value


def value_of(record: Message) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(record.value() or b"")
    return decoded


@dataclass(frozen=True, slots=True)
class Source:
    """The source under test."""

    outbox: Outbox
    capture: Capture
    arrived: Arrived
    admin: AdminClient

    def first_start(self) -> None:
        """Start, and let one row through, so that there is a stored position."""
        apply(self.capture)
        start(self.capture, Start.FIRST)
        self.arrived.await_ids(self.outbox.record("first"))
        self.await_position()

    def await_position(self) -> None:
        """Connect stores positions once a second; wait until it has stored one."""
        until(
            "a stored position",
            lambda: bool(self.capture.client.offsets(self.capture.name).offsets),
            ARRIVE_WITHIN_S,
        )

    def stop(self) -> None:
        self.capture.client.stop_and_wait(self.capture.name)
        until("a free slot", lambda: not self.outbox.active(), 30)

    def grow(self, partitions: int) -> None:
        """More partitions for the topic, in place; they are read too."""
        topic = self.capture.settings.topic
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        added = range(PARTITIONS, partitions)
        self.arrived.consumer.incremental_assign([TopicPartition(topic, n, 0) for n in added])


@contextmanager
def source_on(stack: LiveStack) -> Iterator[Source]:
    """A fresh source; connector, slot, database and topic are gone afterwards."""
    facts = stack.facts
    name = f"s{random.SystemRandom().randrange(1 << 40):x}"
    bootstrap, topic = facts["kafka_bootstrap"], f"capture.{name}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    with psycopg.connect(facts["postgres_dsn"], autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    outbox = install(dsn_of(facts["postgres_dsn"], name), name, f"slot_{name}", name)
    with requests.Session() as session, _reading(bootstrap, topic) as consumer:
        capture = _capture(outbox, facts["connect_url"], session, name, topic)
        try:
            yield Source(outbox, capture, Arrived(consumer), admin)
        finally:
            session.delete(f"{facts['connect_url']}/connectors/{capture.name}", timeout=30)
            until("a free slot", lambda: not outbox.active(), 30)
            outbox.drop_slot()
            with psycopg.connect(facts["postgres_dsn"], autocommit=True) as connection:
                connection.execute(
                    sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
                )
            admin.delete_topics([topic])[topic].result(30)


def _capture(
    outbox: Outbox, connect_url: str, session: requests.Session, name: str, topic: str
) -> Capture:
    info = psycopg.conninfo.conninfo_to_dict(outbox.dsn)
    settings = SourceSettings(
        source=name,
        host=str(info["host"]),
        port=int(str(info["port"])),
        database=outbox.database,
        ssl_mode="disable",
        topic=topic,
        slot=outbox.slot,
        publication=outbox.publication,
    )
    with outbox.connect() as connection:
        identity = identify(connection, name)
    waiting = Waiting(sleep=time.sleep, monotonic=time.monotonic, random=random.random)
    return Capture(settings, identity, ConnectClient(connect_url, session, waiting), outbox.connect)


@contextmanager
def _reading(bootstrap: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    try:
        yield consumer
    finally:
        consumer.close()
