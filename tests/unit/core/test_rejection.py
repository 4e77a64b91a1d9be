"""Error reports, shape by shape, and what they mean for a meter event in each of its states."""

from dataclasses import replace
from itertools import permutations
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.lane import MeterEventState
from streams.core.rejection import (
    ERROR_REPORT,
    NO_METER_FOUND,
    Accused,
    ErrorReport,
    Sample,
    TakeBack,
    Tried,
    Unchanged,
    UnreadableReport,
    decide,
    read,
)

START_US = 1_795_975_200_000_000
END_US = START_US + 10_000_000
WINDOW = {
    "validation_start": "2026-11-29T18:00:00.000Z",
    "validation_end": "2026-11-29T18:00:10.000Z",
}
RELATED = {"id": "mtr_1", "type": "billing.meter", "url": "/v1/billing/meters/mtr_1"}


def sample(message: str | None = "gone", **request: str) -> dict[str, Any]:
    return {"error_message": message, "request": request}


def told(reason: Any, **changes: Any) -> bytes:
    event = {
        "id": "evt_1",
        "object": "v2.core.event",
        "type": ERROR_REPORT,
        "created": "2026-11-29T18:00:12.000Z",
        "related_object": RELATED,
        "data": {"developer_message_summary": "…", "reason": reason, **WINDOW},
    }
    return msgspec.json.encode({**event, **changes})


def one_type(count: Any, *samples: Any, code: str = "archived_meter") -> dict[str, Any]:
    errors = {"code": code, "error_count": count, "sample_errors": list(samples)}
    return {"error_count": count, "error_types": [errors]}


def report(body: bytes, event_type: str = ERROR_REPORT) -> ErrorReport:
    seen = read("evt_1", event_type, body)
    assert isinstance(seen, ErrorReport), seen
    return seen


@pytest.mark.parametrize(
    ("reason", "named", "unnamed"),
    [
        (one_type(1, sample(identifier="m1:a.g1")), ["m1:a.g1"], 0),
        (one_type(1, sample(id="req_1", idempotency_key="m1:a.g1")), ["m1:a.g1"], 0),
        (one_type(1, sample(identifier="m1:a", idempotency_key="m1:a.g2")), ["m1:a.g2"], 0),
        (one_type(5, sample(identifier="a.g1"), sample(identifier="b.g1")), ["a.g1", "b.g1"], 3),
        # The same request in two samples of a type is one; in two types, two errors.
        (one_type(2, sample(identifier="a.g1"), sample(identifier="a.g1")), ["a.g1"], 1),
        # Without a key the id of the answer is a name: the attempt holds it.
        (one_type(2, sample(id="req_1"), sample(id="req_1")), ["req_1"], 1),
        (one_type(1, {"error_message": "x"}), [], 1),
        (one_type("2", sample(identifier="a.g1")), ["a.g1"], 1),
        # Counts that contradict each other: the greatest is believed.
        ({"error_count": 9, "error_types": []}, [], 9),
        ({"error_count": 1, "error_types": one_type(4)["error_types"]}, [], 4),
        (one_type(0, sample(identifier="a.g1")), ["a.g1"], 0),
        ({}, [], 0),
    ],
)
def test_a_report_names_some_and_counts_all(reason: Any, named: list[str], unnamed: int) -> None:
    seen = report(told(reason))
    assert [one.idempotency_key for one in seen.samples] == named
    assert seen.unnamed == unnamed
    assert seen.error_count == len(seen.samples) + unnamed


def test_a_report_carries_its_meter_its_validation_and_stripes_words() -> None:
    seen = report(told(one_type(1, sample("m" * 900, identifier="a.g1"), code="brand_new")))
    assert (seen.meter_id, seen.start_us, seen.end_us) == ("mtr_1", START_US, END_US)
    assert seen.samples == (Sample("a.g1", "brand_new", "m" * 500),)
    assert report(told(one_type(1, sample(None, identifier="a")))).samples[0].message is None


@pytest.mark.parametrize(
    ("request_of", "request_id", "identifier", "vague"),
    [
        ({"id": "req_1"}, "req_1", None, True),
        ({"id": "req_1", "idempotency_key": "m1:a.g1"}, None, "m1:a", False),
        ({"id": "req_1", "identifier": "m1:a"}, None, "m1:a", False),
    ],
)
def test_the_id_of_an_answer_names_a_request_only_where_nothing_better_does(
    request_of: dict[str, str], request_id: str | None, identifier: str | None, vague: bool
) -> None:
    seen = report(told(one_type(1, sample(**request_of))))
    [one] = seen.samples
    assert (one.request_id, one.identifier, seen.vague) == (request_id, identifier, vague)
    assert one.key_generation in {None, 1}
    assert report(told(one_type(2, sample(**request_of)))).vague


@pytest.mark.parametrize(
    "related", [None, {}, {"id": "x", "type": "other"}], ids=["none", "empty", "another kind"]
)
def test_no_meter_is_named_where_none_was_found(related: Any) -> None:
    body = told(one_type(1), type=NO_METER_FOUND, related_object=related)
    assert report(body, NO_METER_FOUND).meter_id is None


def test_without_a_validation_the_event_s_own_time_stands_for_it() -> None:
    seen = report(told({}, data={"reason": {}}))
    assert (seen.start_us, seen.end_us) == (START_US + 12_000_000,) * 2
    swapped = {"validation_start": WINDOW["validation_end"], "validation_end": "2026-11-29T18:00Z"}
    seen = report(told({}, data={"reason": {}, **swapped}))
    assert (seen.start_us, seen.end_us) == (START_US, END_US)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "truncated"),
        (b"\xff", "malformed"),
        (b'"text"', "Expected `object`"),
        (b'{"id": "evt_1"}', "missing required field `data`"),
        (told({}, data={}), "missing required field `reason`"),
        (told({"error_count": -1}), "$.data.reason.error_count"),
        (told({"error_count": 2**60}), "$.data.reason.error_count"),
        (told({"error_types": {}}), "$.data.reason.error_types"),
        (told(one_type(1, {"request": "r"})), "$.data.reason.error_types[0].sample_errors[0]"),
        (told({}, data={"reason": {}}, created=None), "neither when"),
        (told({}, data={"reason": {}}, created="yesterday"), "yesterday"),
        (told({}, data={"reason": {}}, created="2026-11-29T18:00:00"), "no time zone"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(body: bytes, problem: str) -> None:
    seen = read("evt_1", ERROR_REPORT, body)
    assert isinstance(seen, UnreadableReport)
    assert problem in seen.problem


@pytest.mark.parametrize(
    ("key", "identifier", "generation"),
    [
        ("m1:abc.g7", "m1:abc", 7),
        ("m1:abc", "m1:abc", None),
        ("m1:abc.gx", "m1:abc.gx", None),
        ("a.g1.g2", "a.g1", 2),
        (".g1", ".g1", None),
    ],
)
def test_a_key_holds_the_identifier(key: str, identifier: str, generation: int | None) -> None:
    one = Sample(key, "no_meter", None)
    assert (one.identifier, one.key_generation) == (identifier, generation)


RECORDED = Accused(1, "recorded", None, False, (1,), (Tried(1, "Recorded", 200),))
LOST = Tried(1, "Ambiguous", None)


@pytest.mark.parametrize(
    ("accused", "expected"),
    [
        (RECORDED, TakeBack("refused")),
        # The report was quicker than the answer, or than the settlement.
        (replace(RECORDED, state="pending", tried=(Tried(1, None, None),)), TakeBack("refused")),
        (replace(RECORDED, state="ambiguous", tried=(LOST,)), TakeBack("refused")),
        (replace(RECORDED, state="dead", dead_kind="ambiguous"), TakeBack("refused")),
        # It died before it was recorded, as we thought: its identifier is spent all the same.
        (replace(RECORDED, state="dead", dead_kind="refused"), TakeBack("refused")),
        # The second key met the identifier of the first: it cannot have been accepted.
        (
            replace(RECORDED, tried=(LOST, Tried(2, "AlreadyRecorded", 400))),
            TakeBack("refused"),
        ),
        (replace(RECORDED, tried=(LOST, Tried(2, "Ambiguous", 400))), TakeBack("refused")),
        (replace(RECORDED, tried=(LOST, Tried(2, "Retry", None))), TakeBack("refused")),
        # A later key was accepted, or may have been: then nobody knows what Stripe counts.
        (replace(RECORDED, tried=(LOST, Tried(2, "Recorded", 200))), TakeBack("ambiguous")),
        (replace(RECORDED, tried=(LOST, Tried(2, None, None))), TakeBack("ambiguous")),
        (replace(RECORDED, tried=(LOST, Tried(2, "Ambiguous", 500))), TakeBack("ambiguous")),
        (replace(RECORDED, tried=(LOST, Tried(2, "brand new", None))), TakeBack("ambiguous")),
        # The later one is named as well.
        (
            replace(RECORDED, named=(1, 2), tried=(LOST, Tried(2, "Recorded", 200))),
            TakeBack("refused"),
        ),
        # The identifier alone is clear where only one attempt can be meant.
        (replace(RECORDED, named=(None,)), TakeBack("refused")),
        (
            replace(RECORDED, named=(None,), tried=(LOST, Tried(2, "AlreadyRecorded", 400))),
            TakeBack("refused"),
        ),
        (
            replace(RECORDED, named=(None,), tried=(LOST, Tried(2, "Recorded", 200))),
            TakeBack("ambiguous"),
        ),
        (
            replace(RECORDED, named=(None, 1), tried=(LOST, Tried(2, "Recorded", 200))),
            TakeBack("ambiguous"),
        ),
        # A restored ledger lacks the attempt that is named, and whatever came after it.
        (replace(RECORDED, tried=()), TakeBack("ambiguous")),
        (replace(RECORDED, named=(None,), tried=()), TakeBack("ambiguous")),
        (replace(RECORDED, named=(1, 2)), TakeBack("ambiguous")),
        (replace(RECORDED, named=()), TakeBack("refused")),
        # Done before, or the ledger moved on.
        (replace(RECORDED, state="dead", dead_kind="refused", rejected=True), Unchanged()),
        (
            replace(RECORDED, state="dead", dead_kind="ambiguous", rejected=True),
            TakeBack("refused"),
        ),
        (replace(RECORDED, state="superseded", rejected=True), Unchanged()),
        (replace(RECORDED, state="superseded"), Unchanged()),
        (replace(RECORDED, state="nothing"), Unchanged()),
    ],
)
def test_what_reports_mean_for_a_meter_event(
    accused: Accused, expected: TakeBack | Unchanged
) -> None:
    assert decide(accused) == expected


OUTCOMES = st.sampled_from(["Recorded", "Ambiguous", "AlreadyRecorded", "Retry", None, "new"])
TRIED = st.builds(Tried, st.integers(1, 4), OUTCOMES, st.sampled_from([None, 200, 400, 429, 500]))


@given(
    state=st.sampled_from(get_args(MeterEventState)),
    named=st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=1, max_size=4),
    tried=st.lists(TRIED, max_size=5),
)
def test_the_order_of_reports_and_their_repetition_do_not_matter(
    state: MeterEventState, named: list[int | None], tried: list[Tried]
) -> None:
    ends = {
        applied(Accused(1, state, None, False, (), tuple(tried)), [*order, *order[:2]])
        for order in permutations(named)
    }
    assert len(ends) == 1


def applied(accused: Accused, reports: list[int | None]) -> tuple[str, str | None]:
    """What the ledger says after one report after another, each noted once."""
    for known, one in enumerate(reports):
        if one not in reports[:known]:
            accused = replace(accused, named=(*accused.named, one))
        match decide(accused):
            case TakeBack(kind):
                accused = replace(accused, state="dead", dead_kind=kind, rejected=True)
            case Unchanged():
                pass
    return accused.state, accused.dead_kind
