"""A tenant's words are forgotten, wherever they stood, and every sum says what it said before."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
import pytest

from streams import topics
from streams.core.instant import SECOND_US
from tests.integration.cli.conftest import World
from tests.integration.cli.test_deciding import the_books, told
from tests.integration.cli.test_statement import document, month_of
from tests.support.postgres import Database
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

WORD = "Ann Example"
LIFETIMES: dict[str, int | None] = {
    **dict.fromkeys((topic.name for topic in topics.TOPICS), 90 * 86_400_000),
    topics.REVIEW: None,
}
ASKED = ("erase", "--tenant", "acme")
DO_IT = (*ASKED, "--reason", "ticket 7 of the data protection officer", "--yes")


@pytest.fixture(autouse=True)
def _kafka(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics stay outside; what they keep is known."""
    monkeypatch.setattr(topics, "lifetimes", lambda *_: LIFETIMES)
    world.add_fact("kafka_bootstrap", "127.0.0.1:1")


def write(world: World, recorded: str, key: str, minutes: int = 3) -> None:
    """Records something as if it had come so many minutes ago: its minute is over."""
    earlier = f"received_at - interval '{minutes} min'"
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute(recorded.encode(), {"key": key, "word": WORD})
        conn.execute(
            f"UPDATE metering.usage_key SET received_at = {earlier} WHERE event_key = %s".encode(),
            (key,),
        )
        conn.execute(
            f"UPDATE metering.usage_outbox SET received_at = {earlier}, payload ="
            f" jsonb_set(payload, '{{received_at}}', to_jsonb(metering.wire_time({earlier})))"
            " WHERE payload->>'event_key' = %s".encode(),
            (key,),
        )


def use(world: World, key: str, back: str = "10 min", tenant: str = "acme") -> None:
    write(
        world,
        f"SELECT metering.record_usage('{tenant}', 'api_calls', 3, %(key)s,"
        f" now() - interval '{back}', jsonb_build_object('user', %(word)s::text))",
        key,
    )


def places(database: Database, schema: str) -> set[str]:
    """Tables of a schema that hold the word, as text or as bytes."""
    with database.connect() as conn:
        tables = conn.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
            (schema,),
        ).fetchall()
        found = set()
        for (table,) in tables:
            query = (
                f"SELECT count(*) FROM {schema}.{table} AS t"
                " WHERE t::text LIKE %(like)s OR t::text LIKE %(hex)s"
            )
            like = {"like": f"%{WORD}%", "hex": f"%{WORD.encode().hex()}%"}
            if conn.execute(query.encode(), like).fetchone() != (0,):
                found.add(table)
    return found


def story(world: World) -> int:
    """Usage, a correction by the service, and a late item that was rejected; its number.

    All of it in the service's words, billed, and proven.
    """
    world.cli("customers", "map", "acme", "cus_acme")
    with world.outbox.connect() as admin:
        admin.execute("SELECT metering.put_metric('api_calls', 0, 100)")
    use(world, "one")
    use(world, "late", "30 hours")
    use(world, "theirs", tenant="another")
    until("the usage is at Stripe", lambda: settled(world) == 3, 20)
    write(
        world,
        "SELECT metering.record_correction('acme', 'one', -1, %(key)s, %(word)s, %(word)s)",
        "fix",
    )
    until("the correction is at Stripe", lambda: settled(world) == 2, 20)
    return told(world, "review", "late")


def settled(world: World) -> int:
    world.pipeline.check()
    query = "SELECT coalesce(sum(settled), 0)::bigint FROM ledger.balance WHERE tenant_id = 'acme'"
    return int(world.value(world.ledger, query))


def ready(world: World) -> int:
    """The same, and nothing stands in the way any more."""
    item = story(world)
    assert world.cli("review", "reject", str(item), "--reason", "too late", "--yes").code == 0
    assert world.cli("audit").code == 0
    return item


def erase(world: World, *command: str) -> dict[str, Any]:
    return world.cli.json("erase", *command)


def said(world: World) -> dict[str, Any]:
    """What the books say of the tenant, down to events; erased words and receipts left out."""
    seen = document(world, month_of(world, "10 min"), "--down-to", "event")
    assert seen["foots"]
    seen.pop("erasures")
    for window in seen["windows"]:
        for entry in window["entries"]:
            if entry["kind"] == "correction":
                entry.update(reason=None, actor=None)
    books = the_books(world)
    for name in ("entries", "parked"):
        books.pop(name)
    return {"statement": seen, "books": books}


def test_what_is_not_settled_or_proven_is_named_and_nothing_is_erased(world: World) -> None:
    item = story(world)
    before = places(world.ledger, "ledger"), places(world.outbox, "metering")
    assert before == ({"parked", "meter_log"}, {"usage_outbox_" + day(world), "usage_correction"})
    for command in (ASKED, DO_IT):
        refused = erase(world, *command)
        assert refused["outcome"] == "refused"
        assert {line["what"]: line["number"] for line in refused["blockers"]} == {
            "unproven_identities": 3,
            "parked_items": 1,
        }
    shown = world.cli(*DO_IT)
    assert shown.code == 1
    assert "not yet: 1 parked items: decide on them: `tailrace review list" in shown.err
    assert "nothing was changed" in shown.err
    with (
        world.ledger.connect() as admin,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="1 parked items"),
    ):
        admin.execute("SELECT ledger.erase_tenant_v1('acme', 'past the command', 0)")
    with (
        world.outbox.connect() as admin,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="3 recorded identities"),
    ):
        admin.execute("SELECT metering.erase_tenant('acme', 1, now())")
    assert (places(world.ledger, "ledger"), places(world.outbox, "metering")) == before
    assert world.cli("review", "reject", str(item), "--reason", "too late", "--yes").code == 0


def day(world: World) -> str:
    query = "SELECT to_char(now() AT TIME ZONE 'UTC', '\"p\"YYYYMMDD')"
    return str(world.value(world.outbox, query))


def test_a_plan_says_of_every_store_what_becomes_of_it_and_changes_nothing(world: World) -> None:
    ready(world)
    before = said(world)
    plan = erase(world, *ASKED)
    assert (plan["outcome"], plan["receipt"], plan["blockers"]) == ("planned", None, [])
    becomes = {(line["store"], line["becomes"]) for line in plan["plan"]}
    assert becomes >= {
        ("ledger", "replaced"), ("ledger", "kept"), ("usage.events", "expires"),
        ("usage.review", "kept"), ("archive", "kept"), ("exports", "not ours"),
        ("backups", "not ours"), ("Stripe", "not ours"), ("workers' disks", "kept"),
    }  # fmt: skip
    replaced = [line["rows"] for line in plan["plan"] if line["becomes"] == "replaced"]
    assert replaced == [3, 1, 1, 1]
    stripe = next(line for line in plan["plan"] if line["store"] == "Stripe")
    assert "cus_acme" in stripe["what"]
    shown = world.cli(*ASKED)
    assert (shown.code, "nothing was changed" in shown.err) == (0, True)
    assert "tailrace erase --tenant acme --reason … --yes" in shown.err
    unsaid = world.cli(*ASKED, "--yes")
    assert (unsaid.code, "--reason: a decision needs one" in unsaid.err) == (2, True)
    assert said(world) == before
    assert WORD in world.cli("statement", "--tenant", "acme", "--month",
                             month_of(world, "10 min"), "--down-to", "event").out  # fmt: skip
    nobody = world.cli("erase", "--tenant", "nobody")
    assert (nobody.code, "knows 'nobody'" in nobody.err) == (2, True)


def test_words_go_everywhere_and_every_sum_stays(world: World) -> None:
    item = ready(world)
    before, count = said(world), len(told_to_all(world))

    done = erase(world, *DO_IT)

    assert done["outcome"] == "erased"
    receipt = done["receipt"]
    assert (receipt["records"], receipt["entries"], receipt["source_rows"]) == (1, 1, 4)
    assert receipt["record_bytes"] > 100
    assert places(world.ledger, "ledger") == set()
    # Another tenant's row is as it was.
    assert places(world.outbox, "metering") == {"usage_outbox_" + day(world)}
    assert world.value(
        world.outbox,
        "SELECT string_agg(DISTINCT payload->>'tenant_id', '') FROM metering.usage_outbox"
        f" WHERE payload::text LIKE '%{WORD}%'",
    ) == "another"  # fmt: skip
    assert said(world) == before
    says_so(world, item, receipt["receipt"])

    again = erase(world, *DO_IT)
    assert (again["outcome"], again["receipt"], again["earlier"]) == (
        "unchanged",
        receipt,
        [receipt],
    )
    assert "unchanged: acme has no words left" in world.cli(*DO_IT).out
    assert len(told_to_all(world)) == count + 1

    world.pipeline.replay()
    assert said(world) == before
    assert places(world.ledger, "ledger") == set()
    assert world.cli("audit").code == 0
    assert world.cli("reconcile").code == 0
    sent_again_without_words(world)
    assert said(world) == before
    recorded_again(world, before)


def sent_again_without_words(world: World) -> None:
    """Rows that are emitted once more have nothing left to say, and count nothing."""
    with world.outbox.connect() as admin:
        sent = admin.execute(
            "SELECT metering.reemit(now() - interval '1 hour', now(), 'they were lost')"
        ).fetchone()
    assert sent == (4,)
    own = "FROM metering.usage_outbox WHERE payload->>'tenant_id' = 'acme'"
    assert world.value(world.outbox, f"SELECT count(*) {own}") == 6
    assert (
        world.value(world.outbox, f"SELECT count(*) {own} AND payload::text LIKE '%{WORD}%'") == 0
    )


def told_to_all(world: World) -> list[Any]:
    """The log of everything that was done."""
    return list(world.cli.json("ledger_log", "ledger", "log")["log"])


def says_so(world: World, item: int, receipt: int) -> None:
    """Whoever looks for the words finds when they went, and under which receipt."""
    mark = f"(receipt {receipt})"
    record = world.cli.json("parked_show", "review", "show", str(item))["record"]["text"]
    names = msgspec.json.decode(record)
    assert mark in names["erased"]
    assert (names["event_key"], names["quantity"]) == ("late", "3")
    assert "attributes" not in names
    month = month_of(world, "10 min")
    for form in ("text", "csv", "html"):
        asked = ("--tenant", "acme", "--month", month, "--down-to", "event", "--format", form)
        assert mark in world.cli("statement", *asked).out, form
    (erased,) = document(world, month)["erasures"]
    assert erased["receipt"] == receipt
    (journey,) = world.cli.json("trace", "trace", "acme", "one")["journeys"]
    assert [each["receipt"] for each in journey["erasures"]] == [receipt]
    assert mark in world.cli("trace", "acme", "one").out
    assert mark in world.cli("correct", "list", "--all").out
    (logged,) = (line for line in told_to_all(world) if line["action"] == "erase_tenant")
    assert "ticket 7" in str(logged)


def recorded_again(world: World, before: dict[str, Any]) -> None:
    """A copy is known, and a new event's words are erased under a receipt of their own."""
    with world.outbox.connect() as conn:
        status = conn.execute(
            "SELECT status FROM metering.record_usage('acme', 'api_calls', 3, 'one',"
            " (SELECT occurred_at FROM metering.usage_key WHERE event_key = 'one'))"
        ).fetchone()
    assert status == ("duplicate",)
    assert said(world) == before
    # Into a minute of its own: those of before are sealed.
    write(
        world,
        "SELECT metering.record_usage('acme', 'api_calls', 3, %(key)s, now() - interval '1 hour',"
        " jsonb_build_object('user', %(word)s::text))",
        "two",
        minutes=30,
    )
    until("it is at Stripe", lambda: settled(world) == 5, 20)
    assert world.cli("audit").code == 0
    assert erase(world, *DO_IT)["outcome"] == "erased"
    assert len(erase(world, *ASKED)["earlier"]) == 2


def test_topics_say_when_the_last_record_is_gone(world: World) -> None:
    ready(world)
    plan = {line["store"]: line for line in erase(world, *ASKED)["plan"]}
    days = world.value(
        world.ledger,
        f"SELECT round(extract(epoch FROM '{plan['usage.events']['gone_by']}'::timestamptz - now())"
        f" / 86400)::int, {SECOND_US}",
    )
    assert days == 90
    assert plan["usage.review"]["gone_by"] is None
    assert "keep records for ever" in plan["usage.review"]["why"]


@pytest.mark.parametrize("role", ["ledger_reader", "ledger_finance", "ledger_service"])
def test_who_has_no_role_for_it_gets_a_plan_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    ready(world)
    before = said(world)
    monkeypatch.setenv("TAILRACE_LEDGER_DSN", world.ledger.dsn(world.ledger.login(role)))
    assert erase(world, *ASKED)["outcome"] == "planned"
    refused = world.cli(*DO_IT)
    assert (refused.code, "give the DSN of a role that may do this" in refused.err) == (78, True)
    monkeypatch.delenv("TAILRACE_LEDGER_DSN")
    assert (said(world), places(world.ledger, "ledger")) == (before, {"parked", "meter_log"})


def test_neither_database_is_changed_where_the_other_refuses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(world)
    before = said(world), places(world.ledger, "ledger"), places(world.outbox, "metering")
    ops = world.outbox.login("metering_ops")
    monkeypatch.setenv("TAILRACE_SOURCE_DSN", world.outbox.dsn(ops))
    assert world.cli(*DO_IT).code == 78
    monkeypatch.delenv("TAILRACE_SOURCE_DSN")
    assert before == (said(world), places(world.ledger, "ledger"), places(world.outbox, "metering"))


def test_two_roles_are_enough(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(world)
    ledger, outbox = world.ledger, world.outbox
    monkeypatch.setenv("TAILRACE_LEDGER_DSN", ledger.dsn(ledger.login("ledger_eraser")))
    monkeypatch.setenv("TAILRACE_SOURCE_DSN", outbox.dsn(outbox.login("metering_eraser")))
    done = erase(world, *DO_IT)
    assert (done["outcome"], done["receipt"]["actor"]) == ("erased", "login_ledger_eraser")
    assert places(ledger, "ledger") == set()
