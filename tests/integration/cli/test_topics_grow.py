"""Topics grow while nobody writes, and the ledger is told how; whatever ends it is typed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams import topic_growth, topics
from streams.cli import growth_plan
from streams.core.growth import grown_log_id
from streams.core.identity import topic_id_of
from streams.topics import EVENTS, TOPICS, TopicsError
from tests.integration.cli.conftest import Cli, Ran
from tests.support.postgres import Database
from tests.unit.connectors.fake_connect import FakeConnect, serving
from tests.unit.fake_broker import Broker

pytestmark = pytest.mark.postgres
ROOT = "11111111-2222-3333-4444-555555555555"
ANOTHER = "99999999-2222-3333-4444-555555555555"
NAMES = [topic.name for topic in TOPICS]
SHOP, WAREHOUSE = "outbox-sandbox", "outbox-warehouse"
WHY = ("--reason", "a third tenant's worth of keys")
SPANS = "SELECT first_partition, partitions, boundaries FROM ledger.log_span ORDER BY 1"
NEXT = [
    "in each service's database: `tailrace source grow --partitions 24`",
    "TAILRACE_PARTITIONS=24 for every worker and command; restart them all",
    "`tailrace connector apply` for each service",
    "`tailrace doctor`, then `tailrace audit`, until it says lost 0",
]


@dataclass
class Grown:
    """Topics of twelve partitions, a ledger that follows them, connectors that are stopped."""

    cli: Cli
    broker: Broker
    connect: FakeConnect
    ledger: Database

    def grow(self, wanted: int, *more: str) -> Ran:
        return self.cli("topics", "grow", "--partitions", str(wanted), *WHY, *more)

    def follow(self, log_id: str = ROOT, partitions: int | None = 12) -> None:
        """As the first facts do it."""
        self.execute(
            "INSERT INTO ledger.log (log_id, log_topic, reason)"
            f" VALUES ('{log_id}', '{EVENTS}', 'a test')"
        )
        if partitions is not None:
            self.execute(
                "INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions)"
                f" VALUES ('{log_id}', '{log_id}', 0, {partitions})"
            )

    def hold(self, log_id: str, partition: int, position: int) -> None:
        """The ledger holds facts of a partition."""
        self.execute(
            f"INSERT INTO ledger.position VALUES ('{log_id}', {partition}, '{EVENTS}',"
            f" {position}, '', now())"
        )

    def execute(self, statement: str) -> None:
        with self.ledger.connect() as conn:
            conn.execute(statement.encode())

    def spans(self) -> list[tuple[int, int, list[int]]]:
        with self.ledger.connect() as conn:
            return conn.execute(SPANS.encode()).fetchall()

    def settings(self, **changes: object) -> None:
        file = self.cli.directory / "sandbox.json"
        facts = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        given = {name: value for name, value in {**facts, **changes}.items() if value is not None}
        file.write_text(json.dumps(given), encoding="utf-8")


@pytest.fixture
def grown(
    fresh_database: Callable[..., Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Grown]:
    ledger = fresh_database("ledger")
    # No worker wrote anything of these partitions.
    monkeypatch.setattr(growth_plan, "written_step", lambda *_: None)
    broker = Broker(dict.fromkeys(NAMES, 12))
    broker.records = {0: [1_000, 2_000], 7: [1_500]}
    monkeypatch.setattr(topics, "AdminClient", lambda _config: broker)
    monkeypatch.setattr(topics, "id_of", lambda *_: topic_id_of(ROOT))
    monkeypatch.chdir(tmp_path)
    for name in ("TAILRACE_DIR", "TAILRACE_STACK"):
        monkeypatch.delenv(name, raising=False)
    connect = FakeConnect()
    for name in (SHOP, WAREHOUSE):
        connect.add(name, {}, "STOPPED")
    connect.add("elasticsearch-sink", {})
    directory = tmp_path / "D"
    directory.mkdir()
    with serving(connect) as url:
        seen = Grown(Cli(directory), broker, connect, ledger)
        (directory / "sandbox.json").write_text("{}", encoding="utf-8")
        seen.settings(
            kafka_bootstrap="nobody:1",
            connect_url=url,
            ledger_dsn=ledger.dsn(ledger.login("ledger_finance")),
        )
        yield seen


def test_topics_grow_once_and_the_ledger_knows_how(grown: Grown) -> None:
    grown.follow()
    planned = grown.grow(24)
    assert planned.code == 2
    plan = planned.err.splitlines()
    assert plan[0] == f"plan: {', '.join(NAMES)}: from 12 to 24 partitions"
    assert plan[1].startswith("partitions 0 to 11 go on as they are; each of the 12 new ones")
    assert "`tailrace topics grow --partitions 24 --reason 'a third tenant" in planned.err
    assert grown.broker.partitions == dict.fromkeys(NAMES, 12), "nothing was changed"

    done = grown.cli.json("topics_grow", "topics", "grow", "--partitions", "24", *WHY, "--yes")
    boundaries = [2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert (done["from"], done["partitions"], done["next"]) == (12, 24, NEXT)
    assert done["done"][-1] == f"the ledger: {EVENTS} from 12 to 24 partitions"
    assert done["boundaries"] == boundaries
    assert grown.broker.partitions == dict.fromkeys(NAMES, 24)
    assert grown.spans() == [(0, 12, []), (12, 24, boundaries)]

    again = grown.grow(24, "--yes")
    assert (again.code, again.out) == (0, "nothing to grow: every topic has 24 partitions\n")
    document = grown.cli.json("topics_grow", "topics", "grow", "--partitions", "24", *WHY)
    assert (document["done"], document["boundaries"], document["next"]) == ([], None, [])
    (entry,) = grown.cli.json("ledger_log", "ledger", "log", "--action", "grow_log")["log"]
    assert entry["why"] == WHY[1]
    assert grown.grow(12).code == 2, "none can be taken away"


def test_it_says_what_was_done_and_what_is_left(grown: Grown) -> None:
    grown.follow()
    done = grown.grow(36, "--yes")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == f"grown: {NAMES[-1]} from 12 to 36 partitions"
    assert done.out.splitlines()[-1] == f"grown: the ledger: {EVENTS} from 12 to 36 partitions"
    assert "next:\n  in each service's database: `tailrace source grow" in done.err


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED"])
def test_nothing_grows_before_every_connector_is_stopped(grown: Grown, state: str) -> None:
    """An own one and those of other services; of other people's none is meant."""
    grown.follow()
    for name in (SHOP, WAREHOUSE):
        grown.connect.states[name] = state
        refused = grown.grow(24, "--yes", "--producers-stopped")
        assert refused.code == 75
        assert f"connectors are not stopped: {name}: connector {state}, task 0" in refused.err
        assert "`tailrace connector stop`" in refused.err
        grown.connect.states[name] = "STOPPED"
    assert grown.broker.partitions == dict.fromkeys(NAMES, 12)
    del grown.connect.configs[SHOP]
    assert grown.grow(24, "--yes").code == 0, "one that is not there writes nothing"


def test_where_connect_cannot_be_asked_somebody_has_to_say_it(
    grown: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown.follow()
    grown.settings(connect_url=None)
    unset = grown.grow(24, "--yes")
    assert (unset.code, "TAILRACE_CONNECT_URL is not set" in unset.err) == (78, True)
    assert "`--producers-stopped`" in unset.err
    grown.settings(connect_url="http://127.0.0.1:1")
    monkeypatch.setattr("streams.cli.growth_plan.PATIENCE_S", 0.1)
    away = grown.grow(24, "--yes")
    assert (away.code, "whether connectors are stopped is not known" in away.err) == (69, True)
    assert grown.broker.partitions == dict.fromkeys(NAMES, 12)
    planned = grown.grow(24, "--producers-stopped")
    assert "--producers-stopped --yes`" in planned.err, "what is to be typed says it, too"
    assert grown.grow(24, "--yes", "--producers-stopped").code == 0


def test_a_crash_before_the_ledger_was_told_is_healed_by_typing_it_again(
    grown: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown.follow()

    def crash(*_: object, **__: object) -> list[int]:
        raise TopicsError("the broker went away")

    with monkeypatch.context() as broken:
        broken.setattr(topic_growth, "boundaries", crash)
        ended = grown.grow(24, "--yes")
    assert ended.code == 78
    assert "the ledger was not told yet: type the same again" in ended.err
    assert grown.broker.partitions == dict.fromkeys(NAMES, 24)
    assert grown.spans() == [(0, 12, [])]
    # Meanwhile somebody has started a connector: it writes by the new count.
    minutes = [10_000 + minute * 60_000 for minute in range(10)]
    grown.broker.records |= {0: [1_000, 2_000, *minutes], 15: [10_000]}
    healed = grown.grow(24, "--yes")
    assert healed.code == 0, healed.err
    assert f"plan: {EVENTS} has 24 partitions already" in healed.err
    assert healed.out == f"grown: the ledger: {EVENTS} from 12 to 24 partitions\n"
    assert grown.spans()[1] == (12, 24, [2 + 5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])


def test_a_crash_between_two_topics_is_healed_too(grown: Grown) -> None:
    grown.follow()
    grown.broker.partitions |= {topics.ADMIT_LOG: 24, topics.DEAD_LETTER: 24}
    assert grown.grow(24, "--yes").code == 0
    assert grown.broker.partitions == dict.fromkeys(NAMES, 24)
    grown.broker.partitions[topics.REVIEW] = 12
    later = grown.grow(24, "--yes")
    assert later.out == f"grown: {topics.REVIEW} from 12 to 24 partitions\n"
    grown.broker.partitions[topics.REVIEW] = 48
    more = grown.grow(24, "--yes")
    assert (more.code, f"{topics.REVIEW} has 48, more than 24" in more.err) == (2, True)


def test_what_the_login_may_not_say_is_refused_before_anything_grows(grown: Grown) -> None:
    grown.follow()
    grown.settings(ledger_dsn=grown.ledger.dsn(grown.ledger.login("ledger_service")))
    refused = grown.grow(24, "--yes")
    assert refused.code == 78
    assert "may not tell the ledger of a growth" in refused.err
    assert grown.broker.partitions == dict.fromkeys(NAMES, 12)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (18, "must be a whole multiple of the 12 there are"),
        (6, "must be more than the 12 there are"),
    ],
)
def test_other_counts_are_refused(grown: Grown, wanted: int, said: str) -> None:
    grown.follow()
    refused = grown.grow(wanted, "--yes")
    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert grown.broker.partitions == dict.fromkeys(NAMES, 12)


def test_a_topic_that_nobody_follows_is_not_grown(grown: Grown) -> None:
    unfollowed = grown.grow(24, "--yes")
    assert (unfollowed.code, "is not followed yet" in unfollowed.err) == (78, True)
    assert "set TAILRACE_PARTITIONS=24, `tailrace topics apply`" in unfollowed.err
    grown.follow(ANOTHER)
    another = grown.grow(24, "--yes")
    assert (another.code, "`tailrace topics adopt`" in another.err) == (78, True)


def test_what_was_altered_past_the_command_is_made_known_step_by_step(grown: Grown) -> None:
    """As by a ledger that was restored from before two growths."""
    grown.follow()
    grown.broker.partitions = dict.fromkeys(NAMES, 48)
    refused = grown.grow(12, "--yes")
    assert (refused.code, "of which the ledger knows 12" in refused.err) == (2, True)
    assert "`tailrace topics grow --partitions 48`" in refused.err
    assert "no whole multiple of it" in grown.grow(36, "--yes").err
    first = grown.grow(24, "--yes")
    assert first.err.endswith("what came after: `tailrace topics grow --partitions 48`\n")
    assert grown.grow(48, "--yes").code == 0
    assert [span[:2] for span in grown.spans()] == [(0, 12), (12, 24), (24, 48)]
    assert grown.broker.partitions == dict.fromkeys(NAMES, 48)


def test_the_log_of_new_partitions_is_the_same_whenever_it_is_told(grown: Grown) -> None:
    """A ledger that was restored from before is told again of what its workers remember."""
    grown.follow()
    grown.broker.partitions = dict.fromkeys(NAMES, 24)
    assert grown.grow(24, "--yes").code == 0
    with grown.ledger.connect() as conn:
        ((log_id,),) = conn.execute(
            "SELECT log_id::text FROM ledger.log_span WHERE root_id <> log_id"
        ).fetchall()
    assert log_id == grown_log_id(ROOT, 12, 24)


def test_a_count_that_nobody_noted_is_the_topics_own(grown: Grown) -> None:
    """Facts came from workers of a release that noted none."""
    grown.follow(partitions=None)
    unsure = grown.grow(12, "--yes")
    assert unsure.out.startswith("nothing to grow: every topic has 12 partitions; the ledger has")
    planned = grown.grow(24)
    assert f"that {EVENTS} had 12 partitions is not noted in the ledger" in planned.err
    assert grown.grow(24, "--yes").code == 0
    assert [span[:2] for span in grown.spans()] == [(0, 12), (12, 24)]


@pytest.mark.parametrize("noted", [None, 24])
def test_a_ledger_that_was_lost_is_told_how_many_there_were(
    grown: Grown, noted: int | None
) -> None:
    """Workers may have told it that the topic began as large as it is."""
    grown.follow(partitions=noted)
    grown.broker.partitions = dict.fromkeys(NAMES, 24)
    assert grown.grow(24, "--from", "36", "--yes").code == 2
    done = grown.grow(24, "--from", "12", "--yes")
    assert done.code == 0, done.err
    assert [span[:2] for span in grown.spans()] == [(0, 12), (12, 24)]
    assert grown.grow(24, "--from", "12").out.startswith("nothing to grow")
    known = grown.grow(48, "--from", "12", "--yes")
    assert (known.code, "the ledger has noted 24" in known.err) == (2, True)


def test_a_topic_that_was_grown_and_lost_is_gone_on_with_as_a_whole(
    grown: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown.follow()
    assert grown.grow(24, "--yes").code == 0
    grown.hold(ROOT, 0, 9)
    grown.hold(grown_log_id(ROOT, 12, 24), 12, 4)
    positions = grown.cli.json("status", "status")["positions"]
    assert [(at["partition"], at["position"]) for at in positions] == [(0, 9), (12, 4)]

    monkeypatch.setattr(topics, "id_of", lambda *_: topic_id_of(ANOTHER))
    grown.broker.partitions[EVENTS] = 12
    refused = grown.cli("topics", "adopt", *WHY, "--yes")
    assert refused.code == 78
    assert f"{EVENTS} has 12 partitions, and had 24 before" in refused.err
    assert "set TAILRACE_PARTITIONS=24, `tailrace topics apply`" in refused.err
    for count in (24, 48):
        grown.broker.partitions[EVENTS] = count
        planned = grown.cli("topics", "adopt", *WHY)
        assert "the ledger holds 15 records in 2 partitions" in planned.err
    assert grown.cli("topics", "adopt", *WHY, "--yes").out == f"adopted: {EVENTS} {ANOTHER}\n"
    assert grown.cli.json("status", "status")["positions"] == [], "nothing of the new log yet"
    again = grown.cli("topics", "adopt", *WHY, "--yes")
    assert again.out.startswith(f"nothing to adopt: {EVENTS} {ANOTHER} is followed since")


def test_a_record_that_holds_a_new_partition_is_shown_before_anything_of_it_is_told(
    grown: Grown,
) -> None:
    grown.follow()
    assert grown.grow(24, "--yes").code == 0
    grown.hold(ROOT, 0, 9)
    new = grown_log_id(ROOT, 12, 24)
    for log_id, partition in ((new, 12), (ANOTHER, 3)):
        grown.execute(
            "INSERT INTO ledger.held_record (log_id, partition, record_offset, fingerprint, reason,"
            f" record_bytes, worker) VALUES ('{log_id}', {partition}, 0, '{'0' * 64}', 'newer', 1,"
            " 'w')"
        )
    assert grown.cli.json("status", "status")["held"] == [{"partition": 12, "why": "newer"}]


def test_growths_that_workers_know_of_are_told_one_by_one(
    grown: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown.follow()
    grown.broker.partitions = dict.fromkeys(NAMES, 48)
    monkeypatch.setattr(growth_plan, "written_step", lambda *_: 24)
    leapt = grown.grow(48, "--yes")
    assert leapt.code == 2
    assert "grew from 12 to 24 first" in leapt.err
    assert "`tailrace topics grow --partitions 24`, then on to 48" in leapt.err
    assert grown.spans() == [(0, 12, [])]
    assert grown.grow(24, "--yes").code == 0
