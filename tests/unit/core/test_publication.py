from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.observation import Answer, History, MaybeSent, NotSent, Observation
from streams.core.outcome import (
    AlreadyRecorded,
    Ambiguous,
    Collision,
    Hold,
    Outcome,
    Recorded,
    Refused,
    Retry,
    Systemic,
)
from streams.core.publication import KEY_IN_USE_WAIT_MS, RULES, classify, codes, contract, rule_for

ID = "m1:abc"
FIRST = History(ID, 1_000, key_generation=0, possibly_executed=False)
DOUBTED = replace(FIRST, possibly_executed=True)
DUPLICATE = Answer(
    400,
    parsed=True,
    error_type="invalid_request_error",
    error_message=f"An event already exists with identifier {ID}.",
    should_retry=False,
)


BUSY = Retry(1, charge="if_sink_up")


def said(status: int, code: str | None = None, message: str | None = None) -> Answer:
    return Answer(
        status,
        parsed=True,
        error_type="invalid_request_error",
        error_code=code,
        error_message=message,
    )


def test_every_rule_has_a_name_of_its_own_and_words() -> None:
    rows = contract()
    assert len({name for name, _, _ in rows}) == len(rows) == len(RULES) + 2
    assert all(observed and meaning for _, observed, meaning in rows)


TABLE: list[tuple[str, Observation, History, Outcome]] = [
    ("recorded", Answer(200, True, ID), FIRST, Recorded()),
    ("recorded", Answer(200, True, ID, replayed=True), FIRST, Recorded()),
    ("recorded", Answer(201, True, ID), DOUBTED, Recorded()),
    ("other_identifier", Answer(200, True, "x"), DOUBTED, Collision("identifier_mismatch")),
    ("unclear", Answer(200, False), FIRST, Ambiguous(0)),
    ("unclear", Answer(200, True, None), FIRST, Ambiguous(0)),
    ("unclear", Answer(302, False), FIRST, Ambiguous(0)),
    ("duplicate", DUPLICATE, DOUBTED, AlreadyRecorded()),
    ("duplicate", DUPLICATE, FIRST, Collision("duplicate_unexplained")),
    ("duplicate", replace(DUPLICATE, replayed=True), DOUBTED, AlreadyRecorded()),
    ("duplicate", said(400, "duplicate_meter_event"), DOUBTED, AlreadyRecorded()),
    ("duplicate", said(400, "resource_already_exists"), DOUBTED, AlreadyRecorded()),
    (
        "duplicate",
        said(400, "duplicate_meter_event"),
        FIRST,
        Collision("duplicate_unexplained"),
    ),
    (
        "duplicate",
        said(400, None, "An event already exists with identifier m1:other."),
        DOUBTED,
        Collision("duplicate_of_another_identifier"),
    ),
    (
        "key_reused",
        replace(said(400), error_type="idempotency_error"),
        DOUBTED,
        Collision("idempotency_key_reused"),
    ),
    ("credentials", said(401), DOUBTED, Systemic("credentials")),
    ("credentials", said(401, "api_key_expired"), FIRST, Systemic("credentials")),
    ("credentials", Answer(401, False), FIRST, Systemic("credentials")),
    ("permission", said(403), FIRST, Systemic("permission")),
    (
        "throttled",
        replace(said(429), rate_limited_reason="global-rate", retry_after_ms=2_000),
        FIRST,
        Retry(0, 2_000, slow_down=True),
    ),
    (
        "throttled",
        replace(said(429), rate_limited_reason="resource-specific", replayed=True),
        FIRST,
        Ambiguous(1, "never", slow_down=True),
    ),
    ("throttled", said(429, "lock_timeout"), FIRST, Ambiguous(0, "never", slow_down=True)),
    (
        "throttled",
        replace(said(429, "lock_timeout"), replayed=True),
        FIRST,
        Ambiguous(1, "never", slow_down=True),
    ),
    ("throttled", said(400, "rate_limit"), FIRST, Ambiguous(0, "never", slow_down=True)),
    ("throttled", Answer(429, False), FIRST, Ambiguous(0, "never", slow_down=True)),
    (
        "key_in_use",
        said(409, "idempotency_key_in_use"),
        FIRST,
        Ambiguous(0, after_ms=KEY_IN_USE_WAIT_MS),
    ),
    ("lane_busy", said(409, "too_many_concurrent_requests"), FIRST, BUSY),
    ("unclear", said(409, "lock_timeout"), FIRST, Ambiguous(0)),
    (
        "too_old",
        said(400, None, "The event timestamp cannot be more than 35 days in past. Expected …"),
        FIRST,
        Refused("too_old", "too_old"),
    ),
    (
        "too_old",
        said(400, "timestamp_too_far_in_past"),
        FIRST,
        Refused("timestamp_too_far_in_past", "too_old"),
    ),
    ("future", said(400, "timestamp_in_future"), FIRST, Hold(1_000_000_000)),
    ("future", said(400, None, "Timestamp is in the\nfuture"), DOUBTED, Hold(1_000_000_000)),
    (
        "no_meter",
        said(400, None, "No active meter found for event name: x"),
        FIRST,
        Refused("no_meter", "configuration"),
    ),
    ("no_meter", said(400, "archived_meter"), FIRST, Refused("archived_meter", "configuration")),
    ("no_meter", said(400, "archived_meter"), DOUBTED, Ambiguous(1, "always")),
    (
        "bad_data",
        said(400, "meter_event_value_too_many_digits"),
        FIRST,
        Refused("meter_event_value_too_many_digits", "data"),
    ),
    ("bad_data", said(400, None, "No such customer: 'cus_1'"), FIRST, Refused("bad_data", "data")),
    ("bad_data", said(400, "parameter_missing"), DOUBTED, Ambiguous(1, "always")),
    ("unknown_refusal", said(400, "something_new"), FIRST, Refused("something_new", "unknown")),
    ("unknown_refusal", said(404), FIRST, Refused("http_404", "unknown")),
    ("unknown_refusal", said(402), DOUBTED, Ambiguous(1, "always")),
    ("unclear", Answer(404, False), FIRST, Ambiguous(0)),
    ("unclear", Answer(400, False), FIRST, Ambiguous(0)),
    ("unclear", said(408), FIRST, Ambiguous(0)),
    ("unclear", said(500), FIRST, Ambiguous(0)),
    ("unclear", replace(said(500), replayed=True), FIRST, Ambiguous(1)),
    ("unclear", replace(said(503), retry_after_ms=7_000), FIRST, Ambiguous(0, after_ms=7_000)),
    ("unclear", Answer(502, False), DOUBTED, Ambiguous(0)),
    ("not_sent", NotSent("ClientConnectorError"), FIRST, Retry(0)),
    ("not_sent", NotSent("ClientConnectorError"), DOUBTED, Retry(0)),
    ("maybe_sent", MaybeSent("SocketTimeoutError"), FIRST, Ambiguous(0)),
]


@pytest.mark.parametrize(("rule", "observation", "history", "outcome"), TABLE)
def test_the_contract_row_by_row(
    rule: str, observation: Observation, history: History, outcome: Outcome
) -> None:
    assert classify(observation, history) == outcome
    if isinstance(observation, Answer):
        assert rule_for(observation, history).name == rule


def test_every_row_of_the_contract_is_in_the_table() -> None:
    assert {name for name, _, _ in contract()} == {row[0] for row in TABLE}


@pytest.mark.parametrize(
    ("row", "code"), [(row, code) for row, names in codes().items() for code in sorted(names)]
)
def test_a_code_that_a_row_knows_leads_to_it(row: str, code: str) -> None:
    assert rule_for(said(400, code), FIRST).name == row
    assert rule_for(said(400, code), DOUBTED).name == row


TEXTS = st.one_of(
    st.none(),
    st.sampled_from(
        [
            ID,
            f"An event already exists with identifier {ID}",
            "duplicate_meter_event",
            "no_meter",
            "rate_limit",
            "timestamp in the past",
            "timestamp in the future",
            "idempotency_error",
            "idempotency_key_in_use",
        ]
    ),
    st.text(max_size=30),
)
ANSWERS = st.builds(
    Answer,
    status=st.integers(100, 599),
    parsed=st.booleans(),
    identifier=TEXTS,
    error_type=TEXTS,
    error_code=TEXTS,
    error_message=TEXTS,
    should_retry=st.none() | st.booleans(),
    replayed=st.booleans(),
    rate_limited_reason=st.none() | st.text(max_size=5),
    retry_after_ms=st.none() | st.integers(0, 10**9),
)
OBSERVATIONS = st.one_of(
    ANSWERS, st.builds(NotSent, st.text(max_size=5)), st.builds(MaybeSent, st.text(max_size=5))
)
HISTORIES = st.builds(
    History,
    identifier=st.just(ID),
    timestamp_s=st.integers(0, 10**10),
    key_generation=st.integers(0, 50),
    possibly_executed=st.booleans(),
)


@given(observation=OBSERVATIONS, history=HISTORIES)
def test_no_observation_is_left_without_an_outcome(
    observation: Observation, history: History
) -> None:
    outcome = classify(observation, history)
    if isinstance(outcome, Retry | Ambiguous):
        # The key moves by at most one, and only after an error that was received.
        moved = outcome.next_key_generation - history.key_generation
        assert moved in {0, 1}
        assert moved == 0 or isinstance(observation, Answer)


@given(observation=OBSERVATIONS, history=HISTORIES)
def test_doubt_is_never_settled_as_refused(observation: Observation, history: History) -> None:
    outcome = classify(observation, replace(history, possibly_executed=True))
    assert not isinstance(outcome, Refused)


@given(observation=OBSERVATIONS, history=HISTORIES)
def test_only_a_success_or_an_explained_duplicate_is_recorded(
    observation: Observation, history: History
) -> None:
    outcome = classify(observation, history)
    if isinstance(outcome, Recorded):
        assert isinstance(observation, Answer)
        assert observation.status // 100 == 2
        assert observation.identifier == ID
    if isinstance(outcome, AlreadyRecorded):
        assert history.possibly_executed
