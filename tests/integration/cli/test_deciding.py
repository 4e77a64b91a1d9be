"""What people decide: a plan first, then done once, then a replay that changes nothing."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from streams.cli import deciding
from streams.core.instant import LAST_US
from tests.integration.cli.conftest import Ran, World, new_key
from tests.integration.cli.pipeline import Doubt
from tests.integration.cli.test_reconcile import a_day_passes
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

PEOPLE = ("ann", "ben")


def person(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From here on commands are typed by this person of finance."""
    with world.ledger.connect() as admin:
        if admin.execute("SELECT to_regrole(%s)", (name,)).fetchone() == (None,):
            admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        admin.execute(f"GRANT ledger_finance TO {name}".encode())
    monkeypatch.setenv("TAILRACE_LEDGER_DSN", world.ledger.dsn(name))


def told(world: World, kind: str, reason: str) -> int:
    """Waits until an item of this reason is open; its number."""
    found: list[int] = []

    def there() -> bool:
        world.pipeline.check()
        number = world.value(
            world.ledger,
            "SELECT max(parked_id) FROM ledger.parked WHERE state = 'open'"
            f" AND kind = '{kind}' AND reason = '{reason}'",
        )
        found[:] = [] if number is None else [number]
        return bool(found)

    until(f"a {kind} item {reason}", there, deadline_s=20)
    return found[0]


def window_of(world: World, units: int) -> str:
    """Waits until a window of acme's api_calls comes to so many units; its start."""
    query = (
        "SELECT window_start::text FROM ledger.balance WHERE tenant_id = 'acme'"
        f" AND metric = 'api_calls' AND total + decided = {units}"
    )
    until(f"a window of {units}", lambda: world.value(world.ledger, query) is not None)
    return str(world.value(world.ledger, query)).replace(" ", "T") + ":00"


def balance(world: World, column: str = "total + decided") -> int:
    query = f"SELECT coalesce(sum({column}), 0)::bigint FROM ledger.balance"
    return int(world.value(world.ledger, query))


def the_books(world: World) -> dict[str, object]:
    """Everything that a replay must leave alone, and what Stripe has."""
    queries = {
        "amounts": "SELECT tenant_id, metric, window_start, events, total, decided, held, dead,"
        " ambiguous FROM ledger.balance ORDER BY 1, 2, 3",
        "entries": "SELECT * FROM ledger.meter_log WHERE kind <> 'usage' ORDER BY entry_id",
        "parked": "SELECT parked_id, state, decided_by, why FROM ledger.parked ORDER BY 1",
        "decisions": "SELECT * FROM ledger.decision ORDER BY decision_id",
        "proposals": "SELECT * FROM ledger.proposal ORDER BY proposal_id",
        "findings": "SELECT * FROM ledger.finding ORDER BY finding_id",
        "requests": "SELECT identifier, units, state FROM ledger.meter_event WHERE state ="
        " 'recorded' ORDER BY identifier",
    }
    with world.ledger.connect() as conn:
        return {name: conn.execute(query.encode()).fetchall() for name, query in queries.items()}


def assert_done_once(world: World, *command: str, said: str) -> Ran:
    """A plan changes nothing, --yes does it, and a second time says so."""
    before = the_books(world)
    plan = world.cli(*command)
    assert (plan.code, "nothing was changed" in plan.err) == (0, True), plan
    assert the_books(world)["decisions"] == before["decisions"]
    unsaid = world.cli(*command, "--yes")
    assert (unsaid.code, "--reason: a decision needs one" in unsaid.err) == (2, True), unsaid
    done = world.cli(*command, "--reason", "seen by eye", "--yes")
    assert done.code == 0, done
    assert said in done.out
    decided = the_books(world)
    again = world.cli(*command, "--reason", "once more", "--yes")
    assert again.code == 0, again
    assert "unchanged" in again.out
    for name in ("entries", "decisions", "parked", "proposals"):
        assert the_books(world)[name] == decided[name]
    return done


def test_a_late_item_is_shown_and_approved_once(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "late-1", back="30 hours")
    item = str(told(world, "review", "late"))
    shown = world.cli.json("parked_show", "review", "show", item)
    assert shown["record"]["topic"] == "usage.events"
    assert '"event_key": "late-1"' in shown["record"]["text"]
    assert [o["command"] for o in shown["outcomes"]] == [
        f"tailrace review approve {item} --reason … --yes",
        f"tailrace review reject {item} --reason … --yes",
    ]
    assert "0 → 3" in world.cli("review", "show", item).out

    done = assert_done_once(world, "review", "approve", item, said=f"approved {item}: +3 units")

    assert "0 → 3" in done.out
    world.settled(3)
    opposite = world.cli("review", "reject", item, "--reason", "no", "--yes")
    assert (opposite.code, "is approved already" in opposite.err) == (1, True)
    shown = world.cli.json("parked_show", "review", "show", item)
    assert [d["action"] for d in shown["decisions"]] == ["approve"]
    assert shown["outcomes"] == []


def test_an_approval_beyond_the_horizon_is_repeated_by_no_replay(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.pipeline.floor_us = LAST_US
    world.record("acme", "forgotten-1")
    item = str(told(world, "review", "beyond_horizon"))
    unproven = world.cli("review", "approve", item, "--reason", "x", "--yes")
    assert (unproven.code, "may have been counted" in unproven.err) == (2, True), unproven
    proof = ("--proof", "the archive lacks it")
    approved = world.cli("review", "approve", item, *proof, "--reason", "x", "--yes")
    assert approved.code == 0, approved
    world.settled(3)
    before = the_books(world)

    world.pipeline.replay()

    assert the_books(world) == before
    assert balance(world) == 3
    assert world.cli.json("parked_list", "review", "list")["items"] == []
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit


def test_items_are_rejected_together_or_not_at_all(world: World) -> None:
    for number in range(2):
        world.record("acme", f"late-{number}", back="30 hours")
        told(world, "review", "late")
    until("both items", lambda: len(the_books(world)["parked"]) == 2)  # type: ignore[arg-type]
    unknown = world.cli("review", "reject", "1", "2", "99", "--reason", "x", "--yes")
    assert (unknown.code, "ITEM: 99 not in this ledger" in unknown.err) == (2, True)
    assert_done_once(world, "review", "reject", "1", "2", said="rejected 2: late, 3 units")
    assert balance(world) == 0


def test_a_conflict_shows_both_versions_and_the_correction_that_takes_the_second(
    world: World,
) -> None:
    world.record("acme", "order-1")
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 9, 'order-1')")
    item = str(told(world, "review", "conflict"))
    shown = world.cli.json("parked_show", "review", "show", item)
    assert [(v["told_by"], v["units"], v["counted"]) for v in shown["versions"]] == [
        ("registry", "3", True)
    ]
    assert shown["units"] == "9"
    take, keep = shown["outcomes"]
    assert "--delta 6 " in take["command"]
    refused = world.cli("review", "approve", item, "--reason", "x", "--yes")
    assert (refused.code, "conflicts with usage" in refused.err) == (1, True)
    typed = take["command"].removeprefix("tailrace ").replace("…", "second-is-right").split()
    assert world.cli(*typed).code == 0
    assert world.cli(*keep["command"].split()[1:-2], "settled", "--yes").code == 0
    assert balance(world) == 9


def test_a_closed_invoice_is_asked_for_and_both_answers_are_named(world: World) -> None:
    with world.outbox.connect() as conn:
        anchor = conn.execute(
            "SELECT date_trunc('hour', now() - interval '26 hours')::text"
        ).fetchone()
    assert anchor is not None
    options = ("--anchor", f"{anchor[0]}:00".replace(" ", "T"), "--interval", "week")
    mapped = world.cli("customers", "map", "acme", "cus_acme", *options, "--grace", "25h")
    assert mapped.code == 0, mapped.err
    world.record("acme", "late-1", back="50 hours")
    item = str(told(world, "review", "late"))
    asked = world.cli("review", "approve", item)
    assert asked.code == 2
    assert "own" in asked.err
    assert "carry" in asked.err
    commands = [o["command"] for o in world.cli.json("parked_show", "review", "show", item)[
        "outcomes"]]  # fmt: skip
    assert ["--into own" in c or "--into carry" in c for c in commands] == [True, True, False]
    assert_done_once(
        world, "review", "approve", item, "--into", "carry", said=f"approved {item}: +3"
    )
    world.settled(3)


def test_dead_letters_are_shown_selected_and_redriven_once(world: World) -> None:
    world.pipeline.refuse = "no_meter"
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "e1", metric="exports")
    item = str(told(world, "dead", "refused"))
    shown = world.cli.json("parked_show", "dead", "show", item)
    assert [(a["code"], a["request_id"]) for a in shown["attempts"]] == [
        ("no_meter", "req_refused")
    ]
    assert shown["outcomes"][0]["effect"] == "create the meter in Stripe, then redrive"
    told_of = world.cli("dead", "show", item).out
    assert "no_meter" in told_of
    assert re.search(r"\nentry +\d+: event \+3, partition \d+, offset 0, identity ", told_of)
    identifier = shown["request"]["identifier"]

    assert world.cli("dead", "redrive").code == 2
    for options, count in (
        (("--cause", "no_meter"), 1),
        (("--cause", "exhausted"), 0),
        (("--tenant", "acme", "--from", "2020-01-01T00:00:00Z"), 1),
        (("--tenant", "globex"), 0),
        (("--to", "2020-01-01T00:00:00Z"), 0),
    ):
        found = world.cli.json("redrive", "dead", "redrive", *options)
        assert [line["course"] for line in found["items"]] == ["resend"] * count, options

    world.pipeline.refuse = None
    assert_done_once(world, "dead", "redrive", item, said=f"redriven {item}")
    world.settled(3)
    settled = world.cli.json("parked_show", "dead", "show", item)
    assert (settled["state"], settled["request"]["identifier"]) == ("redriven", identifier)


def test_a_correction_by_its_opposite_resolves_a_dead_letter_and_says_so(world: World) -> None:
    world.pipeline.refuse = "no_meter"
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "e1", metric="exports")
    item = str(told(world, "dead", "refused"))
    command = ("correct", "--tenant", "acme", "--event-key", "e1", "--delta", "-3", "--key", "out")
    outcomes = world.cli.json("parked_show", "dead", "show", item)["outcomes"]
    assert f"--key dead-{item}-out --reason" in outcomes[1]["command"]
    assert outcomes[1]["effect"] == "or never bill it, which resolves this item: -3 units"

    done = assert_done_once(world, *command, said=f"resolved: dead item {item}")

    assert "booked: entry" in done.out
    (receipt,) = world.cli.json("correction", *command)["resolved_items"]
    assert receipt == int(item)
    listed = world.cli.json("parked_list", "dead", "list")
    assert (listed["total"], listed["corrected"], listed["items"]) == (0, 1, [])
    assert "1 more were resolved by corrections" in world.cli("dead", "list").err
    assert world.cli.json("status", "status")["dead_corrected"] == 1
    assert "dead corrected" in world.cli("status").out
    shown = world.cli.json("parked_show", "dead", "show", item)
    assert (shown["state"], shown["outcomes"]) == ("corrected", [])
    assert [decision["action"] for decision in shown["decisions"]] == ["end"]
    assert "correction out" in world.cli("dead", "redrive", item).out
    assert (balance(world), balance(world, "dead + pending + held")) == (0, 0)
    assert "lost 0 · double 0" in world.cli("audit").out


def test_what_stripe_took_back_is_shown_with_the_reports_code(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "e1", metric="exports")
    world.settled(3)
    with world.ledger.connect() as admin:
        admin.execute(
            "INSERT INTO ledger.error_report (event_id, event_type, error_count, unnamed, body,"
            " noted_by) VALUES ('evt_1', 'report', 1, 0, '{}', 'sweep')"
        )
        admin.execute(
            "INSERT INTO ledger.rejection (event_id, idempotency_key, code, identifier, message,"
            " meter_event_id) SELECT 'evt_1', identifier || '.g1', 'archived_meter', identifier,"
            " 'the meter is archived', meter_event_id FROM ledger.meter_event"
        )
        admin.execute(
            "SELECT ledger.take_back_v1((SELECT json_agg(json_build_object('meter_event_id',"
            " meter_event_id, 'dead_kind', 'refused')) FROM ledger.meter_event))"
        )
    item = str(told(world, "dead", "refused"))
    shown = world.cli("dead", "show", item)
    assert "archived_meter: the meter is archived" in shown.out
    assert "reactivate the meter in Stripe, then redrive" in shown.out
    redriven = world.cli.json("redrive", "dead", "redrive", item, "--reason", "active", "--yes")
    assert [line["course"] for line in redriven["items"]] == ["supersede"]
    world.settled(3)


def doubt_of_yesterday(world: World) -> None:
    """Stripe need not know the identifiers any more."""
    with world.ledger.connect() as admin:
        admin.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
        admin.execute(
            "UPDATE ledger.meter_event SET first_attempt_at = now() - interval '23 hours'"
            " WHERE possibly_executed"
        )
        admin.execute("ALTER TABLE ledger.meter_event ENABLE TRIGGER frozen")


def still_sums(world: World) -> None:
    """Stripe's sums stood still for a day, and no attempt is younger than that."""
    a_day_passes(world)
    assert world.cli("reconcile").code == 0
    a_day_passes(world)


def doubtful_item(world: World, truth: Doubt) -> str:
    """A request whose answer was lost yesterday."""
    world.pipeline.doubt = truth
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "e1", metric="exports")
    item = str(told(world, "dead", "ambiguous"))
    doubt_of_yesterday(world)
    return item


@pytest.mark.parametrize("rejected", [False, True])
def test_a_proof_that_stripes_own_sum_contradicts_sends_nothing(
    world: World, rejected: bool
) -> None:
    """`rejected`: Stripe took one attempt back, and may have another one of it."""
    item = doubtful_item(world, "there")
    if rejected:
        with world.ledger.connect() as admin:
            admin.execute("SET session_replication_role = replica")
            admin.execute("UPDATE ledger.meter_event SET rejected_at = now()")
    still_sums(world)

    for options in ((), ("--reason", "I looked", "--yes")):
        refused = world.cli("dead", "redrive", item, "--proof", "its hour shows 0", *options)
        assert (refused.code, "3 beyond what it confirmed" in refused.err) == (2, True), refused

    assert world.cli.json("parked_list", "dead", "list")["items"] != []


def test_a_proof_by_a_sum_that_may_still_grow_sends_nothing(world: World) -> None:
    item = doubtful_item(world, "absent")
    redrive = ("dead", "redrive", item, "--proof", "its hour shows 0", "--reason", "x", "--yes")

    young = world.cli(*redrive)

    assert (young.code, "proves nothing yet: an attempt could" in young.err) == (2, True), young
    # Somebody else's usage, which nothing explains, is no reason to wait for less.
    dated = world.value(world.ledger, "SELECT max(timestamp_s) FROM ledger.meter_event")
    world.foreign("cus_acme", "exports", 2, int(dated))
    with world.ledger.connect() as conn:
        conn.execute("ALTER TABLE ledger.attempt DISABLE TRIGGER once")
        conn.execute("UPDATE ledger.attempt SET lease_until = now() - interval '1 hour'")
    foreign = world.cli(*redrive)
    assert (foreign.code, "its last attempt is too young" in foreign.err) == (2, True), foreign
    assert world.cli.json("parked_list", "dead", "list")["items"] != []


def test_a_proof_for_a_ledger_that_went_back_is_left_to_its_sums(world: World) -> None:
    item = doubtful_item(world, "absent")
    with world.ledger.connect() as conn:
        assert conn.execute("SELECT ledger.adopt_v1('restored', 'ann', true)").fetchone() == (1,)
    still_sums(world)

    refused = world.cli("dead", "redrive", item, "--proof", "its hour shows 0")

    assert (refused.code, "the ledger went back" in refused.err) == (2, True), refused


def test_a_cause_that_selects_nothing_names_those_that_are_there(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    empty = world.cli("dead", "redrive", "--cause", "no_meter")
    assert (empty.code, "no request is dead" in empty.err) == (0, True)
    world.pipeline.refuse = "no_meter"
    world.record("acme", "e1", metric="exports")
    told(world, "dead", "refused")
    wrong = world.cli("dead", "redrive", "--cause", "nonsense")
    assert (wrong.code, "they died of: no_meter, refused" in wrong.err) == (0, True), wrong


def test_doubt_is_redriven_only_with_proof(world: World) -> None:
    world.pipeline.doubt = "absent"
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "e1", metric="exports")
    item = str(told(world, "dead", "ambiguous"))
    young = world.cli("dead", "redrive", item)
    assert (young.code, "under its identifier" in young.out) == (0, True)
    # A correction would end it only once it is known whether Stripe has it.
    (only,) = world.cli.json("parked_show", "dead", "show", item)["outcomes"]
    assert only["command"].startswith(f"tailrace dead redrive {item}")
    doubt_of_yesterday(world)
    refused = world.cli("dead", "redrive", item, "--reason", "x", "--yes")
    assert (refused.code, "needs --proof" in refused.out) == (1, True)
    bulk = world.cli("dead", "redrive", "--cause", "ambiguous", "--proof", "all of it")
    assert (bulk.code, "--proof: a proof of absence speaks of one request" in bulk.err) == (2, True)
    world.pipeline.doubt = None
    still_sums(world)
    assert_done_once(
        world, "dead", "redrive", item, "--proof", "its hour shows 0", said="new identifier"
    )
    world.settled(3)


def test_a_malformed_record_says_what_to_do_and_ends_by_a_rejection(world: World) -> None:
    world.record("acme", "m1", metric="api_calls")
    with world.outbox.connect() as conn:
        conn.execute(
            "INSERT INTO metering.usage_outbox SELECT (r).* FROM (SELECT jsonb_populate_record("
            "o, jsonb_build_object('event_id', gen_random_uuid(), 'payload',"
            " o.payload - 'tenant_id')) AS r FROM metering.usage_outbox o LIMIT 1) AS made"
        )
    item = str(told(world, "dead", "malformed"))
    shown = world.cli.json("parked_show", "dead", "show", item)
    assert (shown["record"]["topic"], shown["request"]) == ("usage.events", None)
    assert "new event key" in shown["outcomes"][0]["effect"]
    refused = world.cli("dead", "redrive", item, "--reason", "x", "--yes")
    assert (refused.code, "no request" in refused.out) == (1, True)
    assert_done_once(world, "review", "reject", item, said="rejected")


def test_a_correction_is_previewed_booked_reversed_each_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "order-1")
    world.settled(3)
    start = window_of(world, 3)
    person(world, monkeypatch, "ann")
    options = ("--tenant", "acme", "--metric", "api_calls", "--window", start)
    correct = ("correct", *options, "--delta", "-2", "--key", "ticket-1")
    preview = world.cli.json("correction", *correct)
    assert preview["actor"] == "ann"
    assert preview["window_units"] == {"before": "3", "after": "1"}
    assert (preview["outcome"], preview["done"]) == ("booked", False)
    assert "3 → 1 units" in world.cli(*correct).out

    assert_done_once(world, *correct, said="booked: entry")

    world.settled(1)
    below = world.cli("correct", *options, "--delta", "-2", "--key", "ticket-2")
    assert (below.code, "At most -1 is possible." in below.err) == (2, True)
    other = world.cli("correct", *options, "--delta", "-1", "--key", "ticket-1")
    assert (other.code, "stands for another correction" in other.err) == (2, True)
    assert_done_once(world, "correct", "reverse", "ticket-1", said="booked: entry")
    world.settled(3)
    assert world.cli("correct", "reverse", "ticket-9").code == 2
    listed = world.cli.json("corrections_list", "correct", "list", "--all")
    assert [(b["correction_key"], b["units"]) for b in listed["booked"]] == [
        ("ticket-1", "-2"),
        ("reversal of ticket-1", "2"),
    ]


def test_a_correction_by_event_key_finds_its_window_and_target(world: World) -> None:
    event_id = world.record("acme", "order-1")
    window_of(world, 3)
    correct = ("correct", "--tenant", "acme", "--event-key", "order-1", "--delta", "+4")
    assert_done_once(world, *correct, "--key", "t1", said="booked: entry")
    assert world.value(
        world.ledger,
        "SELECT target_event_id::text FROM ledger.meter_log WHERE kind = 'correction'",
    ) == event_id  # fmt: skip
    assert window_of(world, 7)


def test_above_the_limit_two_logins_are_needed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.record("acme", "order-1")
    start = window_of(world, 3)
    correct = (
        "correct", "--tenant", "acme", "--metric", "api_calls", "--window", start, "--delta",
        "5000", "--key", "big-1",
    )  # fmt: skip
    person(world, monkeypatch, "ann")
    assert "another login must approve" in world.cli(*correct).out
    assert_done_once(world, *correct, said="proposed: 1, by ann")
    assert balance(world) == 3
    own = world.cli("correct", "approve", "1", "--reason", "mine", "--yes")
    assert (own.code, "your own" in own.err) == (1, True)
    listed = world.cli.json("corrections_list", "correct", "list")["proposals"]
    assert [(p["proposed_by"], p["units"], p["state"]) for p in listed] == [("ann", "5000", "open")]
    assert "big-1" in world.cli("correct", "list").out
    assert world.cli.json("status", "status")["waiting"]["proposals_open"] == 1
    assert "`tailrace correct list`" in world.cli("status").out
    person(world, monkeypatch, "ben")
    assert_done_once(world, "correct", "approve", "1", said="booked: entry")
    assert balance(world) == 5003
    taken_back = world.cli("correct", "reject", "1", "--reason", "x", "--yes")
    assert (taken_back.code, "approved already" in taken_back.err) == (1, True)


def test_a_large_correction_of_a_service_is_agreed_to_before_it_is_approved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.record("acme", "order-1")
    window_of(world, 3)
    with world.outbox.connect() as conn:
        conn.execute(
            "SELECT metering.record_correction('acme', 'order-1', 5000, 'svc-1', 'measured', 'eve')"
        )
    item = str(told(world, "review", "correction_limit"))
    shown = world.cli.json("parked_show", "review", "show", item)
    assert "once two logins have approved it" in shown["outcomes"][0]["effect"]
    approve = ("review", "approve", item, "--reason", "seen the log", "--yes")
    person(world, monkeypatch, "ann")
    assert f"would agree to {item}: +5000 units" in world.cli("review", "approve", item).out
    for _ in range(2):
        first = world.cli(*approve)
        assert (first.code, f"agreed to {item}: +5000" in first.out) == (0, True), first
    assert balance(world) == 3
    person(world, monkeypatch, "ben")
    assert f"approved {item}: +5000 units" in world.cli(*approve).out
    assert balance(world) == 5003


def test_who_decides_second_hears_who_was_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.record("acme", "late-1", back="30 hours")
    item = told(world, "review", "late")
    rehearse = deciding._rehearse

    def overtaken(*arguments: Any) -> tuple[list[str], list[str], set[int]]:
        planned = rehearse(*arguments)
        with world.ledger.connect(world.ledger.login("ledger_finance")) as other:
            other.execute("SELECT ledger.reject(%s, 'a test run')", (item,))
        return planned

    monkeypatch.setattr(deciding, "_rehearse", overtaken)
    late = world.cli("review", "approve", str(item), "--reason", "x", "--yes")

    assert late.code == 1
    assert f"refused {item}: is rejected already" in late.err
    assert "by login_ledger_finance" in late.err
    assert balance(world) == 0


def test_of_two_that_fit_alone_and_not_together_each_is_told_what_became_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 3000, 'order-1')")
        for key in ("svc-1", "svc-2"):
            conn.execute(
                "SELECT metering.record_correction('acme', 'order-1', -2000, %s, 'twice', 'eve')",
                (key,),
            )
    two = "SELECT array_agg(parked_id) FROM ledger.parked WHERE reason = 'correction_limit'"
    until("both are told", lambda: len(world.value(world.ledger, two) or ()) == 2, deadline_s=20)
    window_of(world, 3000)
    first, second = sorted(world.value(world.ledger, two))
    approve = ("review", "approve", str(second), str(first), "--reason", "seen", "--yes")
    person(world, monkeypatch, "ann")
    assert world.cli(*approve).code == 0
    person(world, monkeypatch, "ben")

    decided = world.cli(*approve)

    assert decided.code == 1, decided
    assert len(re.findall(r"(?m)^approved \d+: -2000 units", decided.out)) == 1, decided
    assert len(re.findall(r"(?m)refused \d+: .*negative", decided.err)) == 1, decided
    assert "At most -1000 is possible" in decided.err
    assert balance(world) == 1000


def test_a_proposal_is_taken_back_by_whoever_made_it(world: World) -> None:
    world.record("acme", "order-1")
    start = window_of(world, 3)
    big = ("--delta", "5000", "--key", "big-1", "--reason", "x", "--yes")
    world.cli("correct", "--tenant", "acme", "--metric", "api_calls", "--window", start, *big)
    assert_done_once(world, "correct", "reject", "1", said="rejected 1: 5000 units")


def test_the_limit_is_read_by_all_and_set_by_the_owner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = world.cli.json("correction_limits", "correct", "limit")["limits"]
    assert limits == [{"metric": None, "units": "1000"}]
    done = world.cli(
        "correct", "limit", "5", "--metric", "api_calls", "--reason", "agreed", "--yes"
    )
    assert (done.code, done.out.strip()) == (0, "set api_calls: 5 units alone")
    assert "api_calls" in world.cli("correct", "limit").out
    person(world, monkeypatch, "ann")
    refused = world.cli("correct", "limit", "9", "--reason", "mine", "--yes")
    assert (refused.code, "permission denied" in refused.err) == (78, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--tenant, --delta, --key: missing"),
        (("--tenant", "acme", "--delta", "1", "--key", "k"), "--event-key, or --metric with"),
        (("--tenant", "acme", "--delta", "1", "--key", "k", "--event-key", "no"), "not known here"),
    ],
)
def test_an_incomplete_correction_names_what_is_missing(
    world: World, options: tuple[str, ...], said: str
) -> None:
    refused = world.cli("correct", *options)
    assert (refused.code, said in refused.err) == (2, True), refused


def decide_everything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of decision, and a conflict and a late item that stay open."""
    yes = ("--reason", "decided", "--yes")
    world.cli("customers", "map", "acme", "cus_acme")
    for key in ("order-1", "order-2"):
        world.record("acme", key)
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 9, 'order-1')")
    for key in ("late-1", "late-2", "late-3"):
        world.record("acme", key, back="30 hours")
    for command in ("approve", "reject"):
        item = str(told(world, "review", "late"))
        assert world.cli("review", command, item, *yes).code == 0
    told(world, "review", "conflict")
    world.pipeline.refuse = "no_meter"
    world.record("acme", "e1", metric="exports")
    item = str(told(world, "dead", "refused"))
    world.pipeline.refuse = None
    assert world.cli("dead", "redrive", item, *yes).code == 0
    correct = ("correct", "--tenant", "acme", "--event-key", "order-2")
    person(world, monkeypatch, "ann")
    assert world.cli(*correct, "--delta", "-1", "--key", "t1", *yes).code == 0
    assert world.cli(*correct, "--delta", "2000", "--key", "t2", *yes).code == 0
    person(world, monkeypatch, "ben")
    assert world.cli("correct", "approve", "1", *yes).code == 0
    world.record("acme", new_key(), metric="exports")
    world.settled(6 - 1 + 2000 + 3 + 3 + 3)


def replay_changes_nothing(world: World) -> None:
    before = the_books(world)
    world.pipeline.replay()
    assert the_books(world) == before


def test_a_full_replay_with_empty_state_changes_no_amount_and_no_decision(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide_everything(world, monkeypatch)
    for _ in range(2):
        replay_changes_nothing(world)
    conflicts = "SELECT count(*) FROM ledger.parked WHERE reason = 'conflict'"
    assert world.value(world.ledger, conflicts) == 1
    monkeypatch.delenv("TAILRACE_LEDGER_DSN")
    audited = world.cli("audit")
    assert (audited.code, audited.last.endswith("lost 0 · double 0")) == (0, True), audited


@pytest.mark.parametrize(
    "bug",
    [
        "DROP INDEX ledger.parked_identity",
        "DROP INDEX ledger.parked_identity; CREATE UNIQUE INDEX parked_identity ON ledger.parked"
        " (kind, reason, event_id, content) WHERE event_id IS NOT NULL AND state = 'open'",
        "ALTER TABLE ledger.meter_log DISABLE TRIGGER USER; UPDATE ledger.meter_log SET"
        " event_id = gen_random_uuid() WHERE kind = 'event'",
    ],
    ids=["copies are parked again", "decided items open again", "identities are forgotten"],
)
def test_a_replay_that_repeats_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    decide_everything(world, monkeypatch)
    world.pipeline.publishing = False
    with world.ledger.connect() as admin:
        for statement in bug.split("; "):
            admin.execute(statement.encode())
    with pytest.raises((AssertionError, psycopg.Error)):
        replay_changes_nothing(world)
