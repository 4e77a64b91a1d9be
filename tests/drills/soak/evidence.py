"""What a failed soak leaves: which identities differ and how far each came, the books, the logs."""

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from confluent_kafka import Consumer, TopicPartition

from tests.support.book_reading import read
from tests.support.books import Books
from tests.support.live import LiveStack
from tests.support.oracle import Amount, Key, Window

TOPICS: Final = ("usage.events", "usage.accepted", "usage.review", "usage.dead-letter")
TABLES: Final = (
    "balance", "level", "meter_log", "meter_event", "attempt", "parked", "rejection", "doubt",
    "halt", "position",
)  # fmt: skip
DEADLINE_S: Final = 60.0


@contextmanager
def kept_of_failure(stack: LiveStack, books: Books, out: Path) -> Iterator[None]:
    """Leaves everything in `out` where the block fails, and names the identities that differ.

    Raises:
        AssertionError: with the failure and, per window that differs, its identities.
    """
    shutil.rmtree(out, ignore_errors=True)
    try:
        yield
    except Exception as failure:
        out.mkdir(parents=True)
        told = _told(lambda: differing(stack, books))
        (out / "identities.txt").write_text("\n".join(told) + "\n", encoding="utf-8")
        for name in TABLES:
            _told(lambda name=name: _copy_table(stack, name, out / f"ledger.{name}.csv"))
        shutil.copytree(stack.directory / "logs", out / "logs", dirs_exist_ok=True)
        shown = "\n".join(told[:50])
        raise AssertionError(
            f"{failure}\n\n{shown}\n\nthe books and logs are in {out}"
        ) from failure


def differing(stack: LiveStack, books: Books) -> list[str]:
    """Every window whose amount in the ledger is wrong, with its identities and where each is."""
    seen = read(stack, books.tenants)
    has = {window: Amount(row.events, row.total) for window, row in seen.windows.items()}
    want = {window: Amount(*amount) for window, amount in books.windows.items()}
    wrong = [w for w in sorted(want.keys() | has.keys()) if want.get(w) != has.get(w)]
    lost = sorted(key for key in books.uses if not seen.keys[key])
    if not wrong and not lost:
        return ["registry and ledger have every identity once, in its window"]
    topics = {topic: identities(stack, topic) for topic in TOPICS}
    said = [f"{key[0]} {key[1]} is missing in the key registry" for key in lost]
    for window in wrong:
        said.append(f"{window}: {want.get(window)} expected, {has.get(window)} in the ledger")
        said += _members(window, books, topics)
    return said


def _members(window: Window, books: Books, topics: Mapping[str, Counter[Key]]) -> Iterator[str]:
    """Its identities, those that did not come through to the end first."""
    members = [
        key for key, use in books.uses.items() if use.window == window and use.fate != "late"
    ]
    for key in sorted(members, key=lambda key: (topics["usage.accepted"][key], key)):
        found = ", ".join(f"{topic} {topics[topic][key]}" for topic in TOPICS)
        yield f"  {key[0]} {key[1]} {books.uses[key].fate}: {found}"


def identities(stack: LiveStack, topic: str) -> Counter[Key]:
    """How often each identity is in a topic, read by a consumer of its own."""
    found: Counter[Key] = Counter()
    for value in _values(stack, topic):
        with contextlib.suppress(msgspec.MsgspecError):
            document = msgspec.json.decode(value)
            event = document.get("event") or document
            found[str(event.get("tenant_id")), str(event.get("event_key"))] += 1
    return found


def _values(stack: LiveStack, topic: str) -> Iterator[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": stack.facts["kafka_bootstrap"],
            "group.id": "drill-evidence",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
        for number in partitions:
            yield from _partition(consumer, TopicPartition(topic, number))
    finally:
        consumer.close()


def _partition(consumer: Consumer, partition: TopicPartition) -> Iterator[bytes]:
    low, high = consumer.get_watermark_offsets(partition, timeout=DEADLINE_S)
    if low == high:
        return
    consumer.assign([TopicPartition(partition.topic, partition.partition, low)])
    while (message := consumer.poll(DEADLINE_S)) is not None:
        if message.error() is None:
            yield message.value() or b""
            if (message.offset() or 0) >= high - 1:
                return


def _copy_table(stack: LiveStack, name: str, target: Path) -> Sequence[str]:
    question = f"COPY (SELECT * FROM ledger.{name}) TO STDOUT WITH (FORMAT csv, HEADER)"
    with (
        psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger,
        ledger.cursor().copy(question.encode()) as rows,
        target.open("wb") as file,
    ):
        for row in rows:
            file.write(row)
    return ()


def _told(what: Any) -> Sequence[str]:
    """What a look says; a look that fails is told, for it must not hide the failure itself."""
    try:
        return list(what())
    except Exception as error:  # noqa: BLE001 - whatever it is, the failure is the news
        return [f"{type(error).__name__}: {error}"]
