"""The plan of an erasure says the truth of every store, and how to settle what is in its way."""

from dataclasses import replace

from streams import topics
from streams.cli.erase_plan import Line, blockers_of, plan_of
from streams.cli.erase_read import Found
from streams.core.instant import DAY_US

FOUND = Found(
    tenant="o'hara & co",
    source_name="shop",
    now_us=10 * DAY_US,
    horizon_h=168,
    source={
        "source": "shop", "recorded": 9, "unproven": 0, "addresses": 0, "outbox_rows": 4,
        "outbox_bytes": 1_000, "correction_rows": 2, "conflict_rows": 1,
    },
    ledger={
        "records": 3, "record_bytes": 500, "entries": 2, "named": 0, "levels": 5, "amounts": 6,
        "decisions": 7,
    },
    blockers=(),
    erasures=[],
    customers=("cus_1", "cus_2"),
    archive={"days": 30, "bytes": 9_000},
    lifetimes={topic.name: 90 * 86_400_000 for topic in topics.TOPICS},
)  # fmt: skip


def lines(found: Found, store: str) -> list[Line]:
    return [line for line in plan_of(found) if line.store == store]


def test_every_topic_has_the_day_on_which_its_last_record_is_gone() -> None:
    for topic in topics.TOPICS:
        (line,) = lines(FOUND, topic.name)
        assert (line.becomes, line.gone_by_us) == ("expires", 100 * DAY_US)


def test_a_topic_that_keeps_for_ever_or_is_not_there_is_said_to_be_so() -> None:
    lifetimes = {**FOUND.lifetimes, topics.EVENTS: None}
    del lifetimes[topics.REVIEW]
    found = replace(FOUND, lifetimes=lifetimes)
    (events,), (review,) = lines(found, topics.EVENTS), lines(found, topics.REVIEW)
    assert (events.becomes, events.gone_by_us, review.becomes) == ("kept", None, "kept")
    assert "for ever" in events.why
    assert "no topic of this name" in review.why


def test_what_is_replaced_is_counted_once() -> None:
    replaced = sum(line.rows or 0 for line in plan_of(FOUND) if line.becomes == "replaced")
    assert replaced == FOUND.to_replace == 12


def test_keys_that_look_like_addresses_and_records_of_nobody_are_named() -> None:
    source, ledger = {**FOUND.source, "addresses": 3}, {**FOUND.ledger, "named": 2}
    found = replace(FOUND, source=source, ledger=ledger)
    assert "3 keys have an @" in lines(found, "database of shop")[-1].why
    assert [line.rows for line in lines(found, "ledger")][-1] == 2
    assert len(lines(FOUND, "ledger")) == len(lines(found, "ledger")) - 1


def test_stripe_s_customers_are_named_and_left_to_it() -> None:
    (stripe,) = lines(FOUND, "Stripe")
    assert ("cus_1, cus_2" in stripe.what, stripe.rows, stripe.becomes) == (True, 2, "not ours")
    (nobody,) = lines(replace(FOUND, customers=()), "Stripe")
    assert (nobody.what, nobody.rows) == ("no customer is mapped", 0)


def test_whatever_stands_in_the_way_has_a_next_step_that_a_shell_takes() -> None:
    kinds = (
        "unproven_identities", "parked_items", "open_windows", "unsent_entries",
        "unsettled_requests", "open_proposals",
    )  # fmt: skip
    found = replace(FOUND, blockers=tuple((kind, 1) for kind in kinds))
    steps = {blocker.what: blocker.next for blocker in blockers_of(found)}
    assert list(steps) == list(kinds)
    assert "--tenant 'o'\"'\"'hara & co'" in steps["parked_items"]
    assert "`tailrace audit`" in steps["unproven_identities"]


def test_who_has_nothing_anywhere_is_unknown() -> None:
    nothing = replace(
        FOUND, source=dict.fromkeys(FOUND.source, 0), ledger=dict.fromkeys(FOUND.ledger, 0),
        customers=(),
    )  # fmt: skip
    assert not nothing.known
    assert replace(nothing, customers=("cus_1",)).known
    assert replace(nothing, blockers=(("parked_items", 1),)).known
    assert FOUND.known
