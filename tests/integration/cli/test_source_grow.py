"""`tailrace source grow`: an outbox follows its topics, once, and never runs ahead of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streams import topics
from tests.integration.cli.conftest import Cli, Ran
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres
NAMES = [topic.name for topic in topics.TOPICS]
NEXT = (
    "next: the same in the database of every other source; then TAILRACE_PARTITIONS=24 for all "
    "workers, their restart, `tailrace connector apply` for every source, and `tailrace doctor`\n"
)


@dataclass
class Grower:
    """An outbox of 12 partitions, and a broker that says what the test tells it."""

    outbox: Database
    cli: Cli
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 24))

    def __call__(self, *options: str, partitions: int = 24) -> Ran:
        return self.cli("source", "grow", "--partitions", str(partitions), *options)

    @property
    def canaries(self) -> int:
        return int(self._value("SELECT count(*) FROM metering.canary_key"))

    @property
    def grown(self) -> int:
        return int(self._value("SELECT count(*) FROM metering.growth"))

    def _value(self, query: str) -> Any:
        with self.outbox.connect() as conn:
            row = conn.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture
def grow(
    fresh_database: Callable[..., Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Grower:
    outbox, directory = fresh_database("outbox"), tmp_path / "D"
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    facts = {
        "kafka_bootstrap": "nobody:1",
        "settings": {"TAILRACE_SOURCE_DSN": outbox.dsn(outbox.login("metering_ops"))},
    }
    (directory / "sandbox.json").write_text(json.dumps(facts), encoding="utf-8")
    made = Grower(outbox, Cli(directory))
    monkeypatch.setattr(topics, "counts", lambda *_: made.counts)
    return made


def test_the_plan_is_shown_and_nothing_is_changed_before_somebody_says_yes(grow: Grower) -> None:
    asked = grow()
    assert (asked.code, asked.out) == (2, "")
    assert "plan: source sandbox grows from 12 to 24 partitions, each with a canary" in asked.err
    assert "This cannot be taken back. Nobody is at a terminal" in asked.err
    assert "next: read the plan above, then `tailrace source grow --partitions 24 --yes`" in (
        asked.err
    )
    assert (grow.canaries, grow.grown) == (12, 0)


def test_it_grows_once_and_says_what_comes_next_each_time(grow: Grower) -> None:
    done = grow("--yes")
    said = "grown: source sandbox from 12 to 24 partitions, each with a canary key of its own\n"
    assert (done.code, done.out) == (0, said)
    assert done.err.endswith(NEXT)
    assert (grow.canaries, grow.grown) == (24, 1)
    again = grow("--yes")
    assert (again.code, again.err.endswith(NEXT)) == (0, True)
    assert again.out == "nothing to do: source sandbox has 24 partitions already\n"
    assert (grow.canaries, grow.grown) == (24, 1)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (dict.fromkeys(NAMES, 12), "partitions: usage.events has 12, usage.accepted has 12"),
        (dict.fromkeys(NAMES, 24) | {topics.REVIEW: 12}, "usage.review has 12, asked for 24"),
        ({}, "partitions: there is no usage.events, asked for 24"),
    ],
)
def test_it_never_runs_ahead_of_the_topics(grow: Grower, counts: dict[str, int], said: str) -> None:
    grow.counts = counts
    refused = grow("--yes")
    assert (refused.code, refused.out) == (78, "")
    assert said in refused.err
    assert "next: first `tailrace topics grow --partitions 24`" in refused.err
    assert (grow.canaries, grow.grown) == (12, 0)


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        (6, "partitions: must not be less than the 12 there are, is 6"),
        (18, "partitions: must be a whole multiple of the 12 there are, is 18\n  next: pass 24"),
        (2400, "partitions: must lie between 1 and 1024, is 2400"),
    ],
)
def test_what_the_database_refuses_is_said_in_its_words_before_any_plan(
    grow: Grower, partitions: int, said: str
) -> None:
    refused = grow(partitions=partitions)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert "plan" not in refused.err


def test_another_source_s_database_is_left_as_it_is(
    grow: Grower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_SOURCE", "shop")
    refused = grow("--yes")
    assert refused.code == 78
    assert "TAILRACE_SOURCE is shop, the database of TAILRACE_SOURCE_DSN is sandbox" in refused.err
    assert grow.canaries == 12


def test_a_transaction_that_goes_on_sending_canaries_is_not_waited_for_for_ever(
    grow: Grower,
) -> None:
    with grow.outbox.connect() as admin:
        admin.execute("ALTER FUNCTION metering.grow_partitions SET lock_timeout = '100ms'")
    with grow.outbox.connect(autocommit=False) as sender:
        sender.execute("SELECT metering.emit_canaries()")
        busy = grow("--yes")
    assert busy.code == 75
    assert "next: repeat the command" in busy.err
    assert grow("--yes").code == 0


def test_an_outbox_of_before_is_told_what_it_lacks(grow: Grower) -> None:
    with grow.outbox.connect() as admin:
        admin.execute("DROP FUNCTION metering.grow_partitions")
    lacking = grow("--yes")
    assert lacking.code == 78
    assert "tailrace schema check outbox" in lacking.err
