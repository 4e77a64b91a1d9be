"""The soak's service does what services do: a call without an answer is made again, as it was."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tests.drills.soak import evidence, service
from tests.drills.soak.service import Service
from tests.support.books import Books, Use
from tests.support.oracle import Key, Row, Seen

AT = datetime(2026, 11, 30, 1, tzinfo=UTC)


def use(key: str, tenant: str = "acme") -> Use:
    return Use(tenant, "exports", key, 3, AT)


class Database:
    """What stands for Postgres: it fails as often as it is told to."""

    def __init__(self) -> None:
        self.failures = 0
        self.recorded: list[str] = []
        self.ended: list[str] = []

    def record(self, _: object, each: Use) -> None:
        self.recorded.append(each.key)
        self.may_fail()

    def connect(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(
            closed=False,
            close=lambda: None,
            execute=lambda _: None,
            commit=lambda: self.end("commit"),
            rollback=lambda: self.end("rollback"),
        )

    def end(self, how: str) -> None:
        self.ended.append(how)
        self.may_fail()

    def may_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise psycopg.OperationalError("the server closed the connection")


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database()
    monkeypatch.setattr(service, "record", made.record)
    monkeypatch.setattr(service, "PAUSE_S", 0.0)
    monkeypatch.setattr(psycopg, "connect", made.connect)
    return made


Begin = Callable[..., Service]


@pytest.fixture
def begin(database: Database) -> Iterator[Begin]:
    begun: list[Service] = []

    def start(books: Books, *uses: Use, per_s: float = 1e9) -> Service:
        stack: Any = SimpleNamespace(facts={"writer_dsn": "dsn"})
        begun.append(Service(stack, books, iter(uses), per_s))
        return begun[-1]

    yield start
    for each in begun:
        each.end()


def test_what_broke_off_is_recorded_again_and_noted_once(database: Database, begin: Begin) -> None:
    books = Books()
    database.failures = 2
    own = begin(books, use("one"), use("two"))
    own.finish(10)
    assert database.recorded == ["one", "one", "one", "two"]
    assert own.broken_off == 2
    assert books.events == 2


def test_who_has_to_hurry_does_not_keep_the_pace(begin: Begin) -> None:
    books = Books()
    own = begin(books, *(use(str(number)) for number in range(50)), per_s=0.001)
    own.finish(10)
    assert books.events == 50


def test_a_held_transaction_is_noted_when_it_is_committed(database: Database, begin: Begin) -> None:
    books = Books()
    own = begin(books)
    held = own.hold([use("one"), use("two")])
    assert books.events == 0
    own.release(held, commit=True)
    assert (books.events, database.ended) == (2, ["commit"])


def test_a_commit_without_an_answer_is_recorded_again(database: Database, begin: Begin) -> None:
    books = Books()
    own = begin(books)
    held = own.hold([use("one"), use("two")])
    database.failures = 1
    own.release(held, commit=True)
    assert database.recorded == ["one", "two", "one", "two"]
    assert books.events == 2


@pytest.mark.parametrize("failures", [0, 1])
def test_of_a_rolled_back_one_nothing_is_expected_and_its_tenant_is_looked_at(
    database: Database, begin: Begin, failures: int
) -> None:
    books = Books()
    own = begin(books)
    held = own.hold([use("one", "gone")])
    database.failures = failures
    own.release(held, commit=False)
    assert (books.events, books.tenants, database.recorded) == (0, {"gone"}, ["one"])


def test_a_failure_names_the_identities_of_what_differs_and_how_far_they_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = Books()
    for key in ("one", "two", "three"):
        books.note(use(key))
    keys: Any = {("acme", "one"): 1, ("acme", "two"): 1, ("acme", "three"): 1}
    window = use("one").window
    monkeypatch.setattr(
        evidence,
        "read",
        lambda *_: Seen(keys, {}, {window: Row(2, 6, 0, 6, 0)}, {}, ()),
    )

    def identities(_: object, topic: str) -> dict[Key, int]:
        there = {"usage.events": ("one", "two", "three"), "usage.accepted": ("one", "three")}
        return {("acme", key): int(key in there.get(topic, ())) for key in ("one", "two", "three")}

    monkeypatch.setattr(evidence, "identities", identities)
    said = evidence.differing(None, books)  # type: ignore[arg-type]
    assert "Amount(events=3, units=9) expected, Amount(events=2, units=6) in the ledger" in said[0]
    assert said[1].strip().startswith("acme two once: usage.events 1, usage.accepted 0")
    assert len(said) == 4
