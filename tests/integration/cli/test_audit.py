"""`tailrace audit` over real databases: quiet about what is in flight, exact about what is lost."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from streams.engine.partitioner import home_partition
from tests.integration.cli.conftest import World, new_key
from tests.integration.cli.pipeline import PARTITIONS
from tests.support.http_server import on_loopback
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def test_a_stack_in_order_is_proven_and_its_minutes_are_sealed(world: World) -> None:
    for tenant in ("acme", "globex"):
        assert world.cli("customers", "map", tenant, f"cus_{tenant}").code == 0
        for _ in range(3):
            world.record(tenant, new_key())
        world.record(tenant, new_key(), metric="exports")
    world.record("acme", "late", back="30 hours")
    world.settled(24)

    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
    document = world.cli.json("audit", "audit")
    assert document["registry"]["identities"] == 9
    assert document["verdicts"]["accepted"] == 8
    assert document["verdicts"]["review"] == 1
    assert document["stripe"]["equal"] >= 2
    assert document["ok"]


def test_minutes_gone_by_are_sealed_in_both_databases_once(world: World) -> None:
    world.record_before("acme", new_key(), 7)
    assert world.cli("audit").code == 0
    assert world.value(world.ledger, "SELECT count(*) FROM ledger.sealed_minute") == 1
    assert world.value(world.outbox, "SELECT sum(count) FROM metering.sealed_minute") == 1
    again = world.cli.json("audit", "audit")
    assert (again["registry"]["sealed_before"], again["registry"]["sealed_now"]) == (1, 0)


def test_a_sealed_minute_that_changed_is_a_finding(world: World) -> None:
    world.record_before("acme", new_key(), 7)
    assert world.cli("audit").code == 0
    with world.outbox.connect() as conn:
        conn.execute("DELETE FROM metering.usage_key")
    audit = world.cli("audit")
    assert audit.code == 1
    assert "seal: sealed minute" in audit.out
    assert audit.last == "lost 0 · double 1"


def test_a_row_that_never_arrived_is_named(world: World) -> None:
    world.pipeline.lose.add("swallowed")
    world.record("acme", new_key())
    world.record("acme", "swallowed")
    world.record("acme", new_key())

    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 1 · double 0"), audit
    assert "`tailrace connector repair` sends it again" in audit.err
    # Of its minute: where one ended meanwhile, not all three are in it.
    told = re.search(r"registry (\d), verdicts (\d): acme/swallowed", audit.out)
    assert told is not None
    assert int(told[1]) - int(told[2]) == 1
    [finding] = world.cli.json("audit", "audit")["findings"]
    assert finding["exact"]
    assert [i["event_key"] for i in finding["identities"]] == ["swallowed"]


def test_what_a_person_skipped_is_listed_and_explains_what_is_lost(world: World) -> None:
    world.pipeline.newer.add("newer")
    world.pipeline.lose.add("swallowed")
    for key in ("first", "newer", "swallowed", "last"):
        world.record("acme", key)

    audit = world.cli("audit")
    said = "lost 2 · double 0 · 1 of the lost skipped by decision"
    assert (audit.code, audit.last) == (1, said), audit
    home = home_partition(b"acme", PARTITIONS)
    assert f"partition {home}, acme/newer, by ann: not waited for (receipt " in audit.out
    assert "registry 4, verdicts 2: acme/newer, acme/swallowed; 1 of 2 skipped" in audit.out
    document = world.cli.json("audit", "audit")
    [record] = document["skipped"]
    assert (record["state"], record["partition"], record["tenant_id"], record["event_key"]) == (
        "done", home, "acme", "newer",
    )  # fmt: skip
    [finding] = document["findings"]
    assert (finding["lost"], finding["skipped"], finding["exact"]) == (2, 1, True)
    named = {i["event_key"]: i["event_id"] for i in finding["identities"]}
    assert named["newer"] == record["event_id"]


def test_what_nobody_can_read_is_named_and_neither_lost_nor_billed(world: World) -> None:
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.pipeline.unreadable.add("blank")
    world.pipeline.lose.add("swallowed")
    for minutes, key in ((3, "blank"), (2, "swallowed")):
        world.record_before("acme", key, minutes)
    assert world.cli("audit").last == "lost 2 · double 0"
    [record] = world.cli.json("audit", "audit")["skipped"]
    assert (record["tenant_id"], record["named"]) == (None, None)
    place = (str(record["partition"]), str(record["offset"]))
    assert f"tailrace held name {' '.join(place)}" in world.cli("audit").err
    command = ("held", "name", *place, "--reason", "its producer's log")

    for options, why in (
        ((), "2 recorded identities without a verdict are meant; without one: acme/blank, acme/sw"),
        (("--event-key", "first"), "0 recorded identities"),
        (("--tenant", "globex", "--event-key", "blank"), "0 recorded identities"),
    ):
        refused = world.cli(*command, *options, "--yes")
        assert (refused.code, why in refused.err) == (2, True), refused
    named_as = ("--tenant", "acme", "--event-key", "blank")
    plan = world.cli(*command, *named_as)
    assert (plan.code, "not billed, and not lost any more" in plan.err) == (2, True), plan
    assert world.cli("audit").last == "lost 2 · double 0", "a plan names nothing"
    done = world.cli(*command, *named_as, "--yes")
    assert (done.code, "was acme/blank, by " in done.out) == (0, True), done
    again = world.cli(*command, *named_as, "--yes")
    assert (again.code, again.out.startswith("unchanged: done: offset")) == (0, True), again
    other = world.cli(*command, "--tenant", "acme", "--event-key", "swallowed", "--yes")
    assert (other.code, "it was acme/blank" in other.err) == (2, True), other

    world.pipeline.late.add("swallowed")
    until("the other row to come after all", lambda: world.cli("audit").code == 0)
    audit = world.cli("audit")
    assert audit.last == "lost 0 · double 0 · 1 skipped by decision, not billed", audit
    document = world.cli.json("audit", "audit")
    assert (document["verdicts"]["skipped"], document["findings"]) == (1, [])
    assert document["skipped"][0]["named"]["event_key"] == "blank"
    assert document["registry"]["sealed_before"] + document["registry"]["sealed_now"] >= 2
    world.settled(3)
    [journey] = world.cli.json("trace", "trace", "acme", "blank")["journeys"]
    assert journey["verdict"]["class"] == "skipped"
    assert "skipped" in [step["step"] for step in journey["steps"]]
    [held] = world.cli.json("held_list", "held", "list")["records"]
    assert (held["named"]["event_key"], held["state"]) == ("blank", "done")
    assert "it was acme/blank" in world.cli("held", "list").out


def test_a_record_that_names_itself_is_named_by_what_it_says_alone(world: World) -> None:
    world.pipeline.newer.add("newer")
    world.pipeline.lose.add("swallowed")
    for minutes, key in ((3, "newer"), (2, "swallowed")):
        world.record_before("acme", key, minutes)
    assert world.cli("audit").code == 1
    [record] = world.cli.json("audit", "audit")["skipped"]
    command = ("held", "name", str(record["partition"]), str(record["offset"]), "--reason", "seen")

    other = world.cli(*command, "--tenant", "acme", "--event-key", "swallowed", "--yes")
    assert (other.code, "0 recorded identities" in other.err) == (2, True), other
    assert world.cli(*command, "--yes").code == 0

    audit = world.cli("audit")
    assert audit.last == "lost 1 · double 0 · 1 skipped by decision, not billed", audit
    assert "acme/swallowed" in audit.out


def test_a_skip_that_is_a_verdict_needs_no_name(world: World) -> None:
    world.pipeline.astray.add("copied")
    world.record("acme", "copied")
    until("the copy to be skipped", lambda: bool(world.cli.json("audit", "audit")["skipped"]))
    [record] = world.cli.json("audit", "audit")["skipped"]

    place = (str(record["partition"]), str(record["offset"]))
    refused = world.cli("held", "name", *place, "--reason", "x", "--yes")
    assert (refused.code, "the skip is its verdict" in refused.err) == (2, True), refused
    nothing = world.cli("held", "name", place[0], "999", "--reason", "x", "--yes")
    assert (nothing.code, "nothing was skipped" in nothing.err) == (2, True), nothing


def test_a_skipped_copy_of_what_is_billed_is_no_second_verdict_on_it(world: World) -> None:
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.pipeline.astray.add("copied")
    world.record("acme", "copied")
    world.record("acme", new_key())
    world.settled(6)

    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
    document = world.cli.json("audit", "audit")
    assert document["registry"]["copies_skipped"] == 1
    assert document["verdicts"]["accepted"] == 2
    assert document["verdicts"]["dead"] == 0

    [journey] = world.cli.json("trace", "trace", "acme", "copied")["journeys"]
    assert journey["verdict"]["class"] == "accepted"
    [item] = journey["parked"]
    assert item["skip_receipt"] == document["skipped"][0]["receipt"]
    assert journey["levels"]
    assert "skipped" in [step["step"] for step in journey["steps"]]
    assert "a copy, by decision" in world.cli("trace", "acme", "copied").out


def test_a_record_changed_on_its_way_is_lost_until_its_true_row_arrives(world: World) -> None:
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.pipeline.rescale.add("rescaled")
    world.pipeline.rename.add("renamed")
    world.record("acme", "rescaled")
    world.record("acme", "renamed")

    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 1 · double 0"), audit
    [finding] = world.cli.json("audit", "audit")["findings"]
    assert [i["event_key"] for i in finding["identities"]] == ["rescaled"]
    with world.ledger.connect() as conn:
        dead = conn.execute(
            "SELECT detail->>'path', detail->>'rule', parked_id FROM ledger.parked"
            " WHERE kind = 'dead' ORDER BY 1"
        ).fetchall()
    assert [path for path, _, _ in dead] == ["$.content", "$.event_id"]
    for _, rule, number in dead:
        assert "nothing of it was counted" in rule
        shown = world.cli.json("parked_show", "dead", "show", str(number))
        assert "metering.reemit" in shown["outcomes"][0]["effect"]

    world.pipeline.rescale.clear()
    world.pipeline.rename.clear()
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.reemit(now() - interval '1 h', now(), 'rescaled on its way')")
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
    world.settled(6)


def test_what_a_restored_registry_records_again_has_its_one_verdict(world: World) -> None:
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    for number in range(5):
        world.record_before("acme", f"again-{number}", 7)
    world.record_before("acme", "gone", 20)
    world.record("acme", new_key())
    world.settled(21)
    with world.outbox.connect() as conn:
        conn.execute("DELETE FROM metering.usage_key WHERE event_key = 'gone'")
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 0 · double 1"), audit
    assert "If the service's database was restored, record again what it has lost" in audit.out

    with world.outbox.connect() as conn:
        conn.execute(
            "UPDATE metering.usage_key SET received_at = now() WHERE event_key LIKE 'again-%'"
        )
        conn.execute("SELECT metering.reemit(now() - interval '1 hour', now(), 'once more')")
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 0 · double 1"), audit
    assert world.cli.json("audit", "audit")["registry"]["recorded_again"] == 5


def test_what_a_restored_registry_has_recorded_again_in_part_is_not_proven(world: World) -> None:
    for number in range(5):
        world.record_before("acme", f"again-{number}", 7)
    with world.outbox.connect() as conn:
        conn.execute("CREATE TABLE rest AS SELECT * FROM metering.usage_key")
        conn.execute("DELETE FROM metering.usage_key WHERE event_key = 'again-2'")
        conn.execute("UPDATE metering.usage_key SET received_at = now()")
    audit = world.cli("audit")
    unproven = "not proven: 4 of the lost may be recorded again"
    assert (audit.code, audit.last) == (1, f"lost 4 · double 5 · {unproven}"), audit
    assert "let it record again all that it lost, under the same keys (nothing is" in audit.err
    assert "--even-if-healthy" not in audit.err
    document = world.cli.json("audit", "audit")
    assert (document["ok"], document["registry"]["perhaps_again"]) == (False, 4)

    world.pipeline.lose |= {"swallowed-1", "swallowed-2"}
    for key in ("swallowed-1", "swallowed-2"):
        world.record_before("acme", key, 3)
    audit = world.cli("audit")
    unproven = "not proven: 5 of the lost may be recorded again"
    assert (audit.code, audit.last) == (1, f"lost 6 · double 5 · {unproven}"), audit
    assert "--even-if-healthy" in audit.err, "one at least is lost whatever was recorded again"

    with world.outbox.connect() as conn:
        conn.execute("UPDATE rest SET received_at = now()")
        conn.execute(
            "INSERT INTO metering.usage_key SELECT * FROM rest WHERE event_key = 'again-2'"
        )
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 2 · double 0"), audit
    assert "swallowed-1" in audit.out
    assert world.value(world.ledger, "SELECT count(*) FROM ledger.sealed_minute") == 0


def test_conflicts_that_a_restored_registry_has_forgotten_are_told_and_not_double(
    world: World,
) -> None:
    world.record("acme", "order")
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 5, 'order')")
    assert world.cli("audit").last == "lost 0 · double 0"
    with world.outbox.connect() as conn:
        conn.execute("DELETE FROM metering.usage_conflict")
    audit = world.cli("audit")
    said = "lost 0 · double 0 · conflicts that the registry has forgotten: 1"
    assert (audit.code, audit.last) == (1, said), audit
    assert "no unit of these is counted" in audit.out
    assert world.cli.json("audit", "audit")["registry"]["conflicts_forgotten"] == 1
    assert "found lost" not in world.cli("status").out

    with world.ledger.connect() as conn:
        conn.execute("UPDATE ledger.level SET total = total + 1")
    findings = world.cli.json("audit", "audit")["findings"]
    units = [f["double"] for f in findings if f["subject"].startswith("acme api_calls")]
    assert sorted(units) == [0, 1], "other units of usage are double all the same"
    with world.outbox.connect() as conn:
        conn.execute("DELETE FROM metering.usage_key")
    findings = world.cli.json("audit", "audit")["findings"]
    phantoms = [f["double"] for f in findings if f["kind"] == "phantom"]
    assert sorted(phantoms) == [0, 1], "so is usage that was forgotten"


def test_a_verdict_on_something_nobody_recorded_is_a_phantom(world: World) -> None:
    world.pipeline.invent.add("twice")
    world.record("acme", "twice")
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 0 · double 1"), audit


def test_an_open_transaction_raises_no_alarm_and_is_named_by_nothing_until_it_commits(
    world: World,
) -> None:
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 1, 'open', now())")
        audit = world.cli("audit")
        assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
        conn.commit()
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit


def test_a_minute_that_could_still_change_is_never_sealed(world: World) -> None:
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SELECT 1")
        world.record("acme", new_key())
        assert world.cli("audit").code == 0
        sealed = world.value(world.ledger, "SELECT count(*) FROM ledger.sealed_minute")
        assert sealed == 0
        conn.rollback()


def aged(world: World, by: str) -> None:
    """Every open transaction looks as if it had begun that much earlier."""
    with world.outbox.connect() as conn:
        conn.execute("ALTER FUNCTION metering.open_transactions() RENAME TO open_now")
        conn.execute(
            "CREATE FUNCTION metering.open_transactions() RETURNS TABLE (pid integer, gid text,"
            " user_name text, application_name text, state text, started_at timestamptz,"
            " writes_usage boolean) LANGUAGE sql AS $$ SELECT pid, gid, user_name,"
            f" application_name, state, started_at - interval '{by}', writes_usage"
            " FROM metering.open_now() $$".encode()
        )


def test_an_old_transaction_that_keeps_minutes_from_being_sealed_is_told_with_the_way_out(
    world: World,
) -> None:
    world.record_before("acme", new_key(), 7)
    aged(world, "20 min")
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SET application_name = 'billing-job'")
        audit = world.cli("audit")
        pid = conn.info.backend_pid
        assert audit.code == 0
        assert audit.last == "lost 0 · double 0 · 1 minute could not be sealed yet"
        lines = [line for line in audit.out.splitlines() if line.startswith("not sealed: ")]
        [told] = [
            line for line in lines if f"pid {pid} (postgres, billing-job), open since" in line
        ]
        assert "for 20 min;" in told
        assert told.endswith(f"or SELECT pg_terminate_backend({pid})")
        document = world.cli.json("audit", "audit")
        assert (document["ok"], document["complete"], document["lost"]) == (True, False, 0)
        assert document["unsealed"]["minutes"] == 1
        holders = {holder["pid"]: holder for holder in document["unsealed"]["transactions"]}
        holder = holders[pid]
        assert holder["application"] == "billing-job"
        assert 1200 <= holder["age_s"] < 1320
        assert world.cli("audit", "--open-max", "30m").last == "lost 0 · double 0"
        conn.rollback()
    assert world.cli("audit").last == "lost 0 · double 0"
    assert world.cli.json("audit", "audit")["complete"]


def test_a_prepared_transaction_that_holds_usage_is_told_by_its_name(world: World) -> None:
    world.record_before("acme", new_key(), 7)
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 1, 'prepared', now())")
        conn.execute("PREPARE TRANSACTION 'forgotten'")
    audit = world.cli("audit", "--open-max", "0s")
    assert "not sealed: prepared transaction forgotten of postgres, since" in audit.out
    assert "COMMIT PREPARED 'forgotten', or ROLLBACK PREPARED 'forgotten'" in audit.out
    assert audit.last == "lost 0 · double 0 · 1 minute could not be sealed yet"


def test_a_held_partition_is_a_finding_and_what_waits_there_is_not_called_lost(
    world: World,
) -> None:
    number = home_partition(b"acme", PARTITIONS)
    world.pipeline.held.add(number)
    world.record("acme", new_key())
    world.record("globex", new_key())
    why = "schema version 2 is unknown here: upgrade the workers"
    with answering(f"partition {number}: {why}\n") as url:
        world.add_fact("pids", {"workers": [{"metrics_url": url}]})
        audit = world.cli("audit", "--wait-s", "20")
        assert audit.code == 1
        assert f"held: partition {number}: {why}; a held partition admits nothing" in audit.out
        assert audit.last == "lost 0 · double 0 · held 1: what waits there is not judged yet"
        document = world.cli.json("audit", "audit")
        assert [finding["kind"] for finding in document["findings"]] == ["held"]
        assert (document["ok"], document["complete"]) == (False, False)
        assert f"partition {number} is held: {why}: `tailrace held list`" in world.cli("status").out
    world.pipeline.held.clear()
    assert world.cli("audit").last == "lost 0 · double 0"


@contextmanager
def answering(page: str) -> Iterator[str]:
    """A worker's own web server, of which only /held is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/held" else 404)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_request(self, *_: object) -> None:
            """Say nothing."""

    with on_loopback(Handler) as address:
        yield address


def test_usage_at_stripe_that_the_ledger_did_not_settle_is_double(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", new_key())
    world.settled(3)
    foreign = "UPDATE ledger.meter_event SET state = 'superseded' WHERE state = 'recorded'"
    with world.ledger.connect() as conn:
        conn.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
        conn.execute(foreign.replace("'superseded'", "'pending', settled_at = NULL"))
        conn.execute("UPDATE ledger.meter_event SET first_attempt_at = NULL")
    world.pipeline.publishing = False
    audit = world.cli("audit")
    assert audit.code == 1
    assert "settled 0, Stripe says 3" in audit.out
    assert audit.last == "lost 0 · double 1"


def test_without_the_path_nothing_is_judged(world: World) -> None:
    world.record("acme", new_key())
    world.pipeline.stop()
    audit = world.cli("audit", "--wait-s", "1")
    assert audit.code == 75
    assert "canaries of partitions 0, 1, 2" in audit.err
    assert "nothing can be judged yet" in audit.err
    assert "next: see `tailrace connector status`" in audit.err


def test_writers_at_full_speed_during_the_audit_are_never_called_lost(world: World) -> None:
    stop = threading.Event()

    def write() -> int:
        written = 0
        with world.outbox.connect() as conn:
            while not stop.is_set():
                conn.execute(
                    "SELECT metering.record_usage('acme', 'api_calls', 1, %s)", (new_key(),)
                )
                written += 1
        return written

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            audits = [world.cli.json("audit", "audit") for _ in range(3)]
        finally:
            stop.set()
        assert writer.result() > 0
    assert [(a["lost"], a["double"], a["ok"]) for a in audits] == [(0, 0, True)] * 3
    assert any(a["registry"]["minutes_open"] for a in audits)
    settled = world.cli.json("audit", "audit")
    assert (settled["ok"], settled["registry"]["minutes_open"]) == (True, 0)
    assert settled["registry"]["identities"] == writer.result()
