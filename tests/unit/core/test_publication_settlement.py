from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.lane import Claim, Settlement
from streams.core.observation import Answer, MaybeSent, NotSent, Observation
from streams.core.settlement import (
    DAY_US,
    HOUR_US,
    Fenced,
    Permission,
    PublishPolicy,
    Send,
    TooOld,
    Wait,
    health,
    may_send,
    settle,
    settle_unsent,
)
from tests.unit.core.test_publication import DUPLICATE, ID, OBSERVATIONS, said

NOW_US = 1_795_975_200_000_000
POLICY = PublishPolicy()
FIRST = Claim(
    lane_id=1,
    meter_event_id=2,
    attempt_id=3,
    customer="cus_1",
    event_name="api_calls",
    value="5",
    timestamp_s=NOW_US // 10**6 - 60,
    identifier=ID,
    payload_hash="00",
    key_generation=0,
    attempts_used=0,
    previous_attempts=0,
    first_attempt_at_us=NOW_US,
    possibly_executed=False,
    now_us=NOW_US,
    lease_until_us=NOW_US + 60_000_000,
)
DOUBTED = replace(FIRST, possibly_executed=True, previous_attempts=1)


@pytest.mark.parametrize(
    ("claim", "now_us", "permission"),
    [
        (FIRST, NOW_US, Send()),
        (FIRST, NOW_US + 30 * HOUR_US, Send()),
        (DOUBTED, NOW_US + 23 * HOUR_US - 1, Send()),
        (DOUBTED, NOW_US + 23 * HOUR_US, Fenced()),
        (DOUBTED, NOW_US + 100 * DAY_US, Fenced()),
        (FIRST, NOW_US + 34 * DAY_US - 60_000_000, Send()),
        (FIRST, NOW_US + 34 * DAY_US - 60_000_000 + 1, TooOld()),
        (FIRST, NOW_US - 300_000_000, Send()),
        (FIRST, NOW_US - 300_000_001, Wait(NOW_US - 60_000_000)),
    ],
)
def test_the_fences(claim: Claim, now_us: int, permission: Permission) -> None:
    assert may_send(claim, POLICY, now_us) == permission


@pytest.mark.parametrize(
    ("claim", "permission", "state", "dead_kind", "delay_ms"),
    [
        (FIRST, Wait(NOW_US + 5_000_000), "pending", None, 5_000),
        (FIRST, Wait(NOW_US), "pending", None, 1),
        (DOUBTED, Wait(NOW_US + 5_000_000), "ambiguous", None, 5_000),
        (DOUBTED, Fenced(), "dead", "ambiguous", None),
        (FIRST, TooOld(), "dead", "refused", None),
        (DOUBTED, TooOld(), "dead", "ambiguous", None),
    ],
)
def test_what_is_not_sent_is_settled_by_name(
    claim: Claim,
    permission: Wait | Fenced | TooOld,
    state: str,
    dead_kind: str | None,
    delay_ms: int | None,
) -> None:
    settlement = settle_unsent(claim, permission, POLICY)
    assert settlement.state == state
    assert settlement.dead_kind == dead_kind
    assert settlement.retry_delay_ms == delay_ms
    assert settlement.key_generation == claim.key_generation
    assert settlement.evidence.cause


def conclude(claim: Claim, observation: Observation, *, sink_up: bool = True) -> Settlement:
    return settle(claim, observation, POLICY, 0.5, sink_up=sink_up)


OK = Answer(200, True, ID, request_id="req_1")


@pytest.mark.parametrize(
    ("claim", "observation", "state", "dead_kind", "key", "doubt", "used", "delay_ms"),
    [
        (FIRST, OK, "recorded", None, 0, True, False, None),
        (DOUBTED, DUPLICATE, "recorded", None, 0, True, False, None),
        (FIRST, DUPLICATE, "dead", "ambiguous", 0, True, False, None),
        (FIRST, said(400, "no_meter"), "dead", "refused", 1, False, True, None),
        (DOUBTED, said(400, "no_meter"), "ambiguous", None, 1, True, True, 500),
        (FIRST, said(401), "pending", None, 0, False, False, 250),
        (DOUBTED, said(401), "ambiguous", None, 0, True, False, 500),
        (FIRST, NotSent("x"), "pending", None, 0, False, False, 250),
        (DOUBTED, NotSent("x"), "ambiguous", None, 0, True, False, 500),
        (FIRST, MaybeSent("x"), "ambiguous", None, 0, True, True, 250),
        (FIRST, said(500), "ambiguous", None, 0, True, True, 250),
        (FIRST, said(429, "lock_timeout"), "ambiguous", None, 0, True, False, 250),
        (FIRST, said(400, "timestamp_in_future"), "pending", None, 1, False, False, 250),
        (FIRST, said(409, "too_many_concurrent_requests"), "pending", None, 1, False, True, 250),
        (DOUBTED, said(409, "too_many_concurrent_requests"), "ambiguous", None, 1, True, True, 500),
    ],
)
def test_what_an_attempt_does_to_its_meter_event(  # noqa: PLR0917 - columns of a table
    claim: Claim,
    observation: Observation,
    state: str,
    dead_kind: str | None,
    key: int,
    doubt: bool,
    used: bool,
    delay_ms: int | None,
) -> None:
    settlement = conclude(claim, observation)
    assert settlement.state == state
    assert settlement.dead_kind == dead_kind
    assert settlement.key_generation == key
    assert settlement.possibly_executed == doubt
    assert settlement.attempt_used == used
    assert settlement.retry_delay_ms == delay_ms


def test_a_hold_lasts_until_its_date() -> None:
    ahead = replace(FIRST, timestamp_s=NOW_US // 10**6 + 90)
    assert conclude(ahead, said(400, "timestamp_in_future")).retry_delay_ms == 90_000


def test_the_sinks_own_wish_wins() -> None:
    asked = replace(said(429), rate_limited_reason="global-rate", retry_after_ms=4_000)
    assert conclude(FIRST, asked).retry_delay_ms == 4_250


def test_attempts_are_used_up_only_while_the_sink_answers_others() -> None:
    tired = replace(DOUBTED, attempts_used=POLICY.attempts_max - 1)
    down = conclude(tired, MaybeSent("x"), sink_up=False)
    assert (down.state, down.attempt_used) == ("ambiguous", False)
    up = conclude(tired, MaybeSent("x"), sink_up=True)
    assert (up.state, up.dead_kind, up.retry_delay_ms) == ("dead", "ambiguous", None)


@pytest.mark.parametrize(("claim", "kind"), [(FIRST, "exhausted"), (DOUBTED, "ambiguous")])
def test_a_lane_that_somebody_else_keeps_busy_is_exhausted_in_the_end(
    claim: Claim, kind: str
) -> None:
    busy = said(409, "too_many_concurrent_requests")
    tired = replace(claim, attempts_used=POLICY.attempts_max - 1)
    down = conclude(tired, busy, sink_up=False)
    assert (down.dead_kind, down.attempt_used) == (None, False)
    dead = conclude(tired, busy, sink_up=True)
    assert (dead.state, dead.dead_kind, dead.attempt_used) == ("dead", kind, True)
    assert dead.possibly_executed == claim.possibly_executed
    assert dead.key_generation == claim.key_generation + 1


def test_evidence_keeps_what_a_person_will_ask_for() -> None:
    answer = replace(said(400, None, "No active meter " + "x" * 900), request_id="req_9")
    evidence = conclude(FIRST, answer).evidence
    assert evidence.outcome == "Refused"
    assert (evidence.http_status, evidence.code, evidence.request_id) == (400, "no_meter", "req_9")
    assert evidence.message is not None
    assert len(evidence.message) == 500
    assert conclude(FIRST, MaybeSent("SocketTimeoutError")).evidence.cause == "SocketTimeoutError"
    throttled = replace(said(429), rate_limited_reason="global-rate")
    assert conclude(FIRST, throttled).evidence.code == "global-rate"


@pytest.mark.parametrize(
    ("observation", "meaning"),
    [
        (OK, "up"),
        (said(400), "up"),
        (said(404), "up"),
        (said(401), "neutral"),
        (said(403), "neutral"),
        (said(409), "neutral"),
        (said(429), "neutral"),
        (said(500), "down"),
        (Answer(200, False), "down"),
        (Answer(502, False), "down"),
        (NotSent("x"), "down"),
        (MaybeSent("x"), "down"),
    ],
)
def test_what_an_attempt_says_about_the_sink_for_all(
    observation: Observation, meaning: str
) -> None:
    assert health(observation) == meaning


@given(
    observation=OBSERVATIONS,
    possibly=st.booleans(),
    used=st.integers(0, 20),
    uniform=st.floats(0, 1, exclude_max=True),
    sink_up=st.booleans(),
)
def test_every_settlement_is_consistent(
    observation: Observation, possibly: bool, used: int, uniform: float, sink_up: bool
) -> None:
    claim = replace(FIRST, possibly_executed=possibly, attempts_used=used)
    settlement = settle(claim, observation, POLICY, uniform, sink_up=sink_up)
    waiting = settlement.state in {"pending", "ambiguous"}
    assert waiting == (settlement.retry_delay_ms is not None)
    assert (settlement.state == "dead") == (settlement.dead_kind is not None)
    assert settlement.possibly_executed >= possibly
    if settlement.state == "pending":
        assert not settlement.possibly_executed
    if settlement.possibly_executed and settlement.state == "dead":
        assert settlement.dead_kind == "ambiguous"
