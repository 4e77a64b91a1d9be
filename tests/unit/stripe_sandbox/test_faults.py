from typing import get_args

import pytest

from sandbox.stripe_sandbox.faults import MEANINGS, Faults, FaultSpec, Kind, Match

EVENTS = "/v1/billing/meter_events"
FORM = {"payload[stripe_customer_id]": "cus_1", "event_name": "api_calls"}


def test_every_kind_is_explained() -> None:
    assert set(MEANINGS) == set(get_args(Kind))


def test_a_counted_fault_strikes_so_often() -> None:
    faults = Faults(0)
    fault = faults.arm(FaultSpec("429", count=2))
    assert [faults.strike(EVENTS, FORM) is fault for _ in range(3)] == [True, True, False]
    assert fault.spent


def test_an_uncounted_fault_strikes_until_it_is_cleared() -> None:
    faults = Faults(0)
    first, second = faults.arm(FaultSpec("429")), faults.arm(FaultSpec("401"))
    assert faults.strike(EVENTS, FORM) is first
    faults.clear(first.identity)
    assert faults.strike(EVENTS, FORM) is second
    faults.clear()
    assert faults.strike(EVENTS, FORM) is None


@pytest.mark.parametrize(
    ("kind", "match", "path", "strikes"),
    [
        ("429", Match(), EVENTS, True),
        ("429", Match(), "/v1/billing/meters", False),
        ("429", Match(path="/v1/billing/meters"), "/v1/billing/meters", True),
        ("outage", Match(), "/v1/billing/meters", True),
        ("401", Match(), "/v1/account", True),
        ("429", Match(customer="cus_1"), EVENTS, True),
        ("429", Match(customer="cus_2"), EVENTS, False),
        ("429", Match(event_name="api_calls"), EVENTS, True),
        ("429", Match(event_name="storage"), EVENTS, False),
    ],
)
def test_a_fault_strikes_what_it_matches(
    kind: Kind, match: Match, path: str, strikes: bool
) -> None:
    faults = Faults(0)
    faults.arm(FaultSpec(kind, match))
    assert (faults.strike(path, FORM) is not None) == strikes


def test_chance_is_repeatable() -> None:
    def strikes(seed: int | None) -> list[bool]:
        faults = Faults(7)
        faults.arm(FaultSpec("429", probability=0.5, seed=seed))
        return [faults.strike(EVENTS, FORM) is not None for _ in range(64)]

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)
    assert strikes(None) == strikes(None)
    assert 16 < sum(strikes(1)) < 48


def test_turns_go_round() -> None:
    faults = Faults(0)
    fault = faults.arm(FaultSpec("outage"))
    seen = []
    for _ in range(4):
        faults.strike(EVENTS, FORM)
        seen.append(fault.turn(("a", "b", "c")))
    assert seen == ["a", "b", "c", "a"]
