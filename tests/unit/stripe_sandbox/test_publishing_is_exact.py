"""The publishing rules against a Stripe that does its worst: nothing lost, nothing twice."""

from typing import get_args

import pytest
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.stripe_sandbox.settings import Settings
from streams.core.settlement import HOUR_US, PublishPolicy
from tests.unit.stripe_sandbox.driver import Fault, Memory, Publisher, form_of, frozen

FAULTS: tuple[Fault, ...] = get_args(Fault)
GAPS_US = st.sampled_from([0, 1_000_000, HOUR_US, 7 * HOUR_US, 23 * HOUR_US, 26 * HOUR_US])
STEPS = st.lists(st.tuples(st.sampled_from(FAULTS), GAPS_US, st.booleans()), max_size=14)
RULES = st.builds(
    Settings,
    rate_limit=st.just(10**6),
    identifier_window_s=st.sampled_from([86_400, 86_400, 40 * 3_600]),
    key_window_s=st.sampled_from([86_400, 26 * 3_600]),
    store_validation_errors=st.booleans(),
)


def run(publisher: Publisher, steps: list[tuple[Fault, int, bool]]) -> None:
    for fault, gap_us, sink_up in steps:
        if not publisher.open:
            return
        publisher.attempt(fault, sink_up=sink_up)
        publisher.now_us += gap_us


def heal(publisher: Publisher) -> None:
    """The world is well again: every meter event must come to its end soon."""
    for _ in range(6):
        if not publisher.open:
            return
        publisher.attempt("none", sink_up=True)
    raise AssertionError(f"never settled: {publisher}")


@settings(max_examples=400, deadline=None)
@given(steps=STEPS, rules=RULES)
def test_what_is_settled_is_what_stripe_holds(
    steps: list[tuple[Fault, int, bool]], rules: Settings
) -> None:
    memory = Memory(rules)
    publisher = Publisher(memory, frozen())
    run(publisher, steps)
    heal(publisher)
    note(f"{publisher.state} {publisher.dead_kind}")
    counted = memory.counted()[publisher.event.identifier]
    match publisher.state, publisher.dead_kind:
        case "recorded", _:
            assert counted == 1
        case "dead", "refused":
            assert counted == 0
        case "dead", "ambiguous":
            assert counted in {0, 1}
        case other:
            raise AssertionError(other)
    assert not any(code and code.startswith("duplicate_") for code in publisher.codes)


HARMLESS: tuple[Fault, ...] = tuple(fault for fault in FAULTS if fault != "validation")


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(HARMLESS), st.sampled_from([0, HOUR_US]), st.just(False)),
        max_size=14,
    ),
    rules=RULES,
)
def test_an_outage_below_the_fence_ends_with_everything_recorded_once(
    steps: list[tuple[Fault, int, bool]], rules: Settings
) -> None:
    memory = Memory(rules)
    publisher = Publisher(memory, frozen())
    run(publisher, steps)
    assert publisher.attempts_used == 0
    heal(publisher)
    assert publisher.state == "recorded"
    assert memory.counted()[publisher.event.identifier] == 1


def test_without_the_fence_a_lost_answer_would_count_twice() -> None:
    """Shows that the stand-in can tell: the same schedule, with the fence taken away."""
    memory = Memory()
    fenceless = PublishPolicy(ambiguous_us_max=1_000 * HOUR_US)
    publisher = Publisher(memory, frozen(), policy=fenceless)
    publisher.attempt("drop_after", sink_up=False)
    publisher.now_us += 25 * HOUR_US
    publisher.attempt("none", sink_up=False)
    assert memory.counted()[publisher.event.identifier] == 2


def test_with_the_fence_the_same_schedule_is_left_to_the_summaries() -> None:
    memory = Memory()
    publisher = Publisher(memory, frozen())
    publisher.attempt("drop_after", sink_up=False)
    publisher.now_us += 25 * HOUR_US
    publisher.attempt("none", sink_up=False)
    assert (publisher.state, publisher.dead_kind) == ("dead", "ambiguous")
    assert memory.counted()[publisher.event.identifier] == 1


def test_one_key_for_both_would_be_wedged_by_a_stored_error() -> None:
    memory = Memory()
    publisher = Publisher(memory, frozen())
    publisher.attempt("lock_timeout", sink_up=False)
    for _ in range(3):
        publisher.key_generation = 0
        publisher.attempt("none", sink_up=False)
    assert publisher.state == "ambiguous"
    publisher.attempt("none", sink_up=False)
    assert publisher.state == "recorded"


def test_a_foreign_writer_under_our_identifier_is_a_collision() -> None:
    memory = Memory()
    event = frozen()
    memory.post("/v1/billing/meter_events", form_of(event, **{"payload[value]": "999"}))
    publisher = Publisher(memory, event)
    publisher.attempt("none", sink_up=True)
    assert (publisher.state, publisher.dead_kind) == ("dead", "ambiguous")
    assert publisher.codes == ["duplicate_unexplained"]


def test_a_foreign_writer_under_our_key_is_a_collision() -> None:
    memory = Memory()
    event = frozen()
    foreign = form_of(event, identifier="foreign")
    memory.post("/v1/billing/meter_events", foreign, key=event.idempotency_key(0))
    publisher = Publisher(memory, event)
    publisher.attempt("none", sink_up=True)
    assert publisher.codes == ["idempotency_key_reused"]


@pytest.mark.parametrize("fault", FAULTS)
def test_every_single_fault_heals(fault: Fault) -> None:
    memory = Memory()
    publisher = Publisher(memory, frozen())
    publisher.attempt(fault, sink_up=True)
    if publisher.open:
        heal(publisher)
    expected = ("dead", 0) if fault == "validation" else ("recorded", 1)
    assert (publisher.state, memory.counted()[publisher.event.identifier]) == expected
