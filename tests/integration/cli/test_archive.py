"""Proven days are archived once, whole, and known by their hash for ever."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import psycopg
import pytest

from streams.cli.errors import INTERRUPTED, UNAVAILABLE
from streams.core.instant import wire_text
from streams.engine.log import Record
from tests.integration.cli.conftest import Ran, World, new_key
from tests.support.consumed import Message
from tests.support.object_store import LOGIN, SECRET_KEY, object_store
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


class AcceptedTopic:
    """usage.accepted, as far as it is read: Kafka stays outside these tests."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values

    def partitions(self) -> list[int]:
        return [0]

    def marks(self, _partition: int) -> tuple[int, int]:
        return 0, len(self.values)

    def offset_at(self, _partition: int, _instant_ms: int, _end: int) -> int:
        return 0

    def read(self, _partition: int, _start: int, _end: int) -> Iterator[list[Message]]:
        yield [
            Message("usage.accepted", 0, Record(offset, 0, b"acme", value))
            for offset, value in enumerate(self.values)
        ]


def record_yesterday(world: World, key: str) -> None:
    """One usage row, received when it occurred: more than a day ago."""
    then = "now() - interval '26 hours'"
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute(
            f"SELECT metering.record_usage('acme', 'api_calls', 3, %s, {then})".encode(), (key,)
        )
        conn.execute(
            f"UPDATE metering.usage_key SET received_at = {then} WHERE event_key = %s".encode(),
            (key,),
        )
        conn.execute(
            f"UPDATE metering.usage_outbox SET received_at = {then}, payload = jsonb_set(payload,"
            f" '{{received_at}}', to_jsonb(metering.wire_time({then})))"
            " WHERE payload->>'event_key' = %s".encode(),
            (key,),
        )


def accepted(world: World) -> list[bytes]:
    """What the workers would have put out, the first of it twice."""
    with world.outbox.connect() as conn:
        rows = conn.execute(
            "SELECT payload::text FROM metering.usage_outbox WHERE event_type = 'usage.recorded'"
        ).fetchall()
    head = {
        "v": 1, "source_partition": 0, "catalogue": 1, "window_start": wire_text(0),
        "window_end": wire_text(60_000_000), "units": "3",
    }  # fmt: skip
    values = [
        msgspec.json.encode({**head, "source_offset": offset, "event": msgspec.Raw(text.encode())})
        for offset, (text,) in enumerate(rows)
    ]
    return [*values, values[0]]


@pytest.fixture
def topic(world: World, monkeypatch: pytest.MonkeyPatch) -> AcceptedTopic:
    known = AcceptedTopic([])

    @contextmanager
    def reading(*_: object) -> Iterator[AcceptedTopic]:
        yield known

    monkeypatch.setattr("streams.cli.archive.reading", reading)
    world.add_fact("kafka_bootstrap", "127.0.0.1:1")
    return known


@dataclass
class Place:
    """Where an archive is, as somebody sees it who comes past the commands."""

    out: str
    read: Callable[[str], bytes]
    write: Callable[[str, bytes], object]
    delete: Callable[[str], None]


@pytest.fixture(params=["folder", "object store"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param == "folder":
        folder = tmp_path / "archive"
        yield Place(
            str(folder),
            lambda path: (folder / path).read_bytes(),
            lambda path, content: (folder / path).write_bytes(content),
            lambda path: (folder / path).unlink(),
        )
        return
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    with object_store() as store:
        yield Place(
            store.uri(),
            lambda path: store.object(f"usage/{path}"),
            lambda path, content: store.put(f"usage/{path}", content),
            lambda path: store.delete(f"usage/{path}"),
        )


def test_a_proven_day_is_archived_once_and_what_changes_it_is_found(
    world: World, topic: AcceptedTopic, place: Place, tmp_path: Path
) -> None:
    def run() -> dict[str, Any]:
        return world.cli.json("archive_run", "archive", "run", "--out", place.out)

    assert run() == {"out": place.out, "archived": [], "incomplete": [], "unproven": []}
    for key in (new_key(), new_key()):
        record_yesterday(world, key)
    until(
        "both are counted",
        lambda: world.value(world.ledger, "SELECT sum(count) FROM ledger.level") == 2,
        20,
    )
    (day,) = run()["unproven"]
    assert day["unsealed_minutes"] > 0
    assert world.cli("audit").code == 0

    (lack,) = run()["incomplete"]
    assert (lack["events"], lack["counted"]) == (0, 2)
    topic.values = accepted(world)[:1]
    assert [each["events"] for each in run()["incomplete"]] == [1]
    topic.values = accepted(world)
    assert stopped_before_the_note(world, place).code == INTERRUPTED
    (file,) = run()["archived"]
    assert (file["events"], file["rows"], file["day"]) == (2, 2, day["day"])
    assert run()["archived"] == []
    read = tmp_path / "read.parquet"
    read.write_bytes(place.read(file["path"]))
    (summed,) = duckdb.execute(f"SELECT sum(units), count(*) FROM '{read}'").fetchall()
    assert summed == (6, 2)

    def check() -> list[str]:
        checked = world.cli.json("archive_check", "archive", "check", "--out", place.out)
        return [each["state"] for each in checked["days"]]

    assert check() == ["ok"]
    place.write(file["path"], read.read_bytes() + b"x")
    assert check() == ["changed"]
    assert world.cli("archive", "check", "--out", place.out).code == 1
    place.delete(file["path"])
    assert check() == ["missing"]
    if "://" in place.out:
        gone = world.cli("archive", "check", "--out", re.sub(r":\d+$", ":1", place.out))
        assert gone.code == UNAVAILABLE
        assert "cannot be read" in gone.err
        assert "connect to server" in gone.err
        assert SECRET_KEY not in gone.err + gone.out


def stopped_before_the_note(world: World, place: Place) -> Ran:
    """A run that has written the file, and that nobody can tell from one that has not."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streams.cli.archive.row", stop)
        ran = world.cli("archive", "run", "--out", place.out)
    assert world.value(world.ledger, "SELECT count(*) FROM ledger.archived_day") == 0
    return ran


def test_another_file_of_a_day_is_refused(world: World) -> None:
    note = "SELECT ledger.note_archived_v1('2026-11-29', 'a', 2, 2, 5, 10, repeat('{}', 64))"
    with world.ledger.connect() as conn:
        assert conn.execute(note.format("a").encode()).fetchone() == (True,)
        assert conn.execute(note.format("a").encode()).fetchone() == (False,)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="in another file"):
            conn.execute(note.format("b").encode())
