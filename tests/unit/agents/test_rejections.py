"""Reports by two ways: any order, any repetition, any outage; one ledger."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.adapters.ledger_pool import LedgerRefusedError
from streams.adapters.stripe import StripeUnreadableError
from streams.adapters.stripe_events import RefusedCall
from streams.agents.rejections import Receipt, Rejections, report_samples
from streams.core.observation import Answer, MaybeSent, NotSent, Observation
from streams.core.rejection import (
    ERROR_REPORT,
    NO_METER_FOUND,
    SENT_BEFORE_US,
    Accused,
    ErrorReport,
    TakeBack,
    Tried,
    UnreadableReport,
    decide,
)
from streams.ports import Concerned, LedgerUnavailableError, Noted, NotedBy, Told
from tests.unit.agents.outside import Clock

METER_EVENTS = ("a", "b", "c")


def body(event_id: str, *keys: str, count: int | None = None, meter: str = "mtr_1") -> bytes:
    samples = [{"error_message": "no", "request": {"identifier": key}} for key in keys]
    total = len(keys) if count is None else count
    errors = [{"code": "no_meter", "error_count": total, "sample_errors": samples}]
    return msgspec.json.encode(
        {
            "id": event_id,
            "created": "2026-11-29T18:00:12Z",
            "related_object": {"id": meter, "type": "billing.meter"},
            "data": {"reason": {"error_count": total, "error_types": errors}},
        }
    )


def unreachable(what: str) -> StripeUnreadableError:
    return StripeUnreadableError(what, MaybeSent("TimeoutError"))


@dataclass
class Stripe:
    """Stripe's list of events; fails when told to."""

    events: dict[str, bytes] = field(default_factory=dict)
    away: bool = False
    says: Observation = field(default_factory=lambda: MaybeSent("TimeoutError"))
    """What comes while it is away."""
    fetched: list[str] = field(default_factory=list)
    meters: list[str] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    names_since: list[int] = field(default_factory=list)

    async def event(self, event_id: str) -> bytes:
        self.fetched.append(event_id)
        if self.away:
            raise unreachable(event_id)
        return self.events[event_id]

    async def reports_since(self, since_us: int) -> Sequence[Told]:
        self.since.append(since_us)
        if self.away:
            raise StripeUnreadableError("list", self.says)
        return [Told(event_id, ERROR_REPORT) for event_id in reversed(self.events)]

    async def meter_event_name(self, meter_id: str) -> str | None:
        self.meters.append(meter_id)
        return None if meter_id == "mtr_gone" else "api_calls"

    async def names_taken_since(self, since_us: int) -> frozenset[str]:
        self.names_since.append(since_us)
        return frozenset({"jobs"})


@dataclass
class Ledger:
    """The ledger by its own rules, in memory; every call is one transaction."""

    accused: dict[str, Accused] = field(
        default_factory=lambda: {
            name: Accused(n, "recorded", None, False, (), (Tried(1, "Recorded", 200),))
            for n, name in enumerate(METER_EVENTS)
        }
    )
    noted: dict[str, tuple[Any, Concerned]] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    swept_until: int | None = None
    claimed: bool = False
    silences: list[tuple[str, bool]] = field(default_factory=list)
    """What came in the place of answers since the last sweep."""
    pauses: list[float] = field(default_factory=list)
    away_calls: int = 0
    refuses: set[str] = field(default_factory=set)
    lose_commits: int = 0
    """So many transactions are kept, but their answer is lost."""

    def _call(self) -> None:
        if self.away_calls:
            self.away_calls -= 1
            raise LedgerUnavailableError("away")

    async def known_reports(self, event_ids: Sequence[str]) -> set[str]:
        self._call()
        return {one for one in event_ids if one in self.noted}

    async def note_report(
        self,
        report: ErrorReport | UnreadableReport,
        body: bytes,
        concerned: Concerned,
        noted_by: NotedBy,
    ) -> Noted:
        del body, noted_by
        self._call()
        if isinstance(report, ErrorReport) and report.event_id in self.refuses:
            raise LedgerRefusedError("rejection_pkey")
        if report.event_id in self.noted:
            return Noted(True, 0)
        self.noted[report.event_id] = (report, concerned)
        taken_back = 0
        for sample in report.samples if isinstance(report, ErrorReport) else ():
            name = sample.identifier
            if name is None or name not in self.accused:
                continue
            known = self.accused[name]
            known = replace(known, named=(*known.named, sample.key_generation))
            decision = decide(known)
            if isinstance(decision, TakeBack):
                known = replace(known, state="dead", dead_kind=decision.dead_kind, rejected=True)
                taken_back += 1
            self.accused[name] = known
        self.commits.append(report.event_id)
        self.committed.set()
        if self.lose_commits:
            self.lose_commits -= 1
            raise LedgerUnavailableError("the answer was lost")
        return Noted(False, taken_back)

    async def judge_again(self) -> int:
        self._call()
        return 0

    async def claim_sweep(self, pause_s: float) -> int | None:
        self._call()
        self.pauses.append(pause_s)
        if self.claimed and pause_s > 0:
            return None
        self.claimed = True
        return 7 if self.swept_until is None else self.swept_until

    async def swept(self, until_us: int) -> None:
        self._call()
        self.swept_until = until_us
        self.silences.clear()

    async def unanswered(self, cause: str, *, refused: bool) -> None:
        self._call()
        self.silences.append((cause, refused))

    def says(self) -> dict[str, tuple[str, str | None]]:
        return {name: (one.state, one.dead_kind) for name, one in self.accused.items()}


@dataclass
class Bench:
    stripe: Stripe = field(default_factory=Stripe)
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.desk = Rejections(self.ledger, self.stripe, Clock())

    async def call(self, event_id: str, event_type: str = ERROR_REPORT) -> Receipt:
        return await self.desk.receive(Told(event_id, event_type))


async def test_a_call_is_answered_with_success_once_the_ledger_has_the_report() -> None:
    bench = Bench(Stripe({"evt_1": body("evt_1", "a.g1")}))
    assert await bench.call("evt_1") == Receipt(200, "noted: evt_1")
    assert bench.ledger.says()["a"] == ("dead", "refused")
    assert await bench.call("evt_1") == Receipt(200, "noted before: evt_1")
    assert (bench.desk.figures.noted["webhook"], bench.desk.figures.repeated) == (1, 1)
    assert bench.desk.figures.taken_back == 1


async def test_a_call_that_could_not_be_noted_is_told_again() -> None:
    bench = Bench(Stripe({"evt_1": body("evt_1", "a.g1")}, away=True))
    assert (await bench.call("evt_1")).status == 503
    bench.stripe.away = False
    bench.ledger.away_calls = 1
    assert (await bench.call("evt_1")).status == 503
    assert bench.ledger.commits == []
    bench.ledger.lose_commits = 1
    assert (await bench.call("evt_1")).status == 503
    assert (await bench.call("evt_1")).status == 200
    assert bench.ledger.commits == ["evt_1"]
    assert bench.desk.figures.failures == 3


async def test_other_types_are_answered_by_name_and_counted_and_not_fetched() -> None:
    bench = Bench()
    answers = [await bench.call("evt_9", "v1.billing.meter.updated") for _ in range(2)]
    assert answers == [Receipt(200, "ignored: v1.billing.meter.updated")] * 2
    assert bench.desk.figures.ignored == {"v1.billing.meter.updated": 2}
    assert bench.stripe.fetched == []


async def test_a_call_that_is_not_stripes_is_refused_and_counted() -> None:
    bench = Bench()
    assert await bench.desk.receive(RefusedCall("signature")) == Receipt(400, "refused: signature")
    assert bench.desk.figures.refused == {"signature": 1}


async def test_both_types_are_noted() -> None:
    events = {"evt_1": body("evt_1", "a.g1"), "evt_2": body("evt_2", "b.g1")}
    bench = Bench(Stripe(events))
    await bench.call("evt_1", ERROR_REPORT)
    await bench.call("evt_2", NO_METER_FOUND)
    assert [report.event_type for report, _ in bench.ledger.noted.values()] == [
        ERROR_REPORT, NO_METER_FOUND,
    ]  # fmt: skip


NOBODY_KNOWS = Concerned(None, frozenset({"jobs"}))
NO_METER = msgspec.json.encode(
    {"created": "2026-11-29T18:00:12Z", "data": {"reason": {"error_count": 1}}}
)
BY_ANSWER = body("evt_1").replace(
    b'"sample_errors":[]', b'"sample_errors":[{"request":{"id":"req_1"}}]'
)


@pytest.mark.parametrize(
    ("event", "asked", "concerned"),
    [
        (body("evt_1", "a.g1"), [], Concerned()),
        (body("evt_1", "a.g1", count=9), ["mtr_1"], Concerned("api_calls")),
        (BY_ANSWER, ["mtr_1"], Concerned("api_calls")),
        (body("evt_1", count=9, meter="mtr_gone"), ["mtr_gone"], NOBODY_KNOWS),
        (NO_METER, [], NOBODY_KNOWS),
    ],
)
async def test_whose_the_errors_are_is_asked_where_some_are_left_unnamed(
    event: bytes, asked: list[str], concerned: Concerned
) -> None:
    bench = Bench(Stripe({"evt_1": event}))
    await bench.call("evt_1")
    assert bench.stripe.meters == asked
    assert bench.ledger.noted["evt_1"][1] == concerned
    validated_us = 1_795_975_212_000_000
    expected = [validated_us - SENT_BEFORE_US] if concerned == NOBODY_KNOWS else []
    assert bench.stripe.names_since == expected


async def test_an_unreadable_report_is_kept_counted_and_acknowledged() -> None:
    bench = Bench(Stripe({"evt_1": b"{}"}))
    assert (await bench.call("evt_1")).status == 200
    assert isinstance(bench.ledger.noted["evt_1"][0], UnreadableReport)
    assert bench.desk.figures.unreadable == 1


@pytest.mark.parametrize("way", ["webhook", "sweep"])
async def test_a_report_that_the_ledger_refuses_is_kept_for_a_person_and_stops_nobody(
    way: str,
) -> None:
    events = {f"evt_{n}": body(f"evt_{n}", f"{METER_EVENTS[n]}.g1") for n in range(2)}
    bench = Bench(Stripe(events), Ledger(refuses={"evt_1"}))
    if way == "webhook":
        assert [(await bench.call(event_id)).status for event_id in events] == [200, 200]
    else:
        assert await bench.desk.sweep(0.0) == 2
    report, _ = bench.ledger.noted["evt_1"]
    assert report == UnreadableReport("evt_1", ERROR_REPORT, "rejection_pkey")
    assert bench.ledger.says()["a"] == ("dead", "refused")
    assert bench.desk.figures.unreadable == 1


async def test_a_sweep_notes_what_no_call_has_told_and_fetches_only_that() -> None:
    bench = Bench(Stripe({f"evt_{n}": body(f"evt_{n}", "a.g1") for n in range(3)}))
    await bench.call("evt_1")
    assert await bench.desk.sweep(0.0) == 2
    assert bench.stripe.fetched == ["evt_1", "evt_2", "evt_0"]
    assert await bench.desk.sweep(0.0) == 0
    assert len(bench.stripe.since) == 2
    assert bench.stripe.since[0] == 7
    assert await bench.desk.sweep(60.0) is None


@pytest.mark.parametrize("broken", ["stripe", "ledger"])
async def test_a_sweep_that_fails_is_not_taken_as_read(broken: str) -> None:
    bench = Bench(Stripe({"evt_1": body("evt_1", "a.g1")}))
    bench.stripe.away = broken == "stripe"
    bench.ledger.lose_commits = int(broken == "ledger")
    with pytest.raises((LedgerUnavailableError, StripeUnreadableError)):
        await bench.desk.sweep(0.0)
    assert bench.ledger.swept_until is None
    bench.stripe.away = False
    await bench.desk.sweep(0.0)
    assert bench.ledger.commits == ["evt_1"]
    assert bench.ledger.swept_until is not None


@pytest.mark.parametrize(
    ("seen", "noted"),
    [
        (MaybeSent("TimeoutError"), [("TimeoutError", False)]),
        (NotSent("ClientConnectorError"), [("ClientConnectorError", False)]),
        (Answer(503, False), [("HTTP 503", False)]),
        (Answer(401, True), [("HTTP 401", True)]),
        # It is there: what this key may not, or not so often, is no outage.
        (Answer(403, True), []),
        (Answer(429, True), []),
    ],
    ids=str,
)
async def test_a_sweep_that_stripe_does_not_answer_is_told_to_the_ledger_until_one_is_answered(
    seen: Observation, noted: list[tuple[str, bool]]
) -> None:
    bench = Bench(Stripe(away=True, says=seen))
    with pytest.raises(StripeUnreadableError):
        await bench.desk.sweep(0.0)
    assert bench.ledger.silences == noted
    bench.stripe.away = False
    await bench.desk.sweep(0.0)
    assert bench.ledger.silences == []


async def test_while_stripe_is_away_it_is_asked_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at an outage should not have to wait a quarter of an hour for its end."""
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        bench.ledger.claimed = len(rests) == 1  # by another, who knows no more
        bench.stripe.away = False
        if len(rests) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", rest)
    bench = Bench(Stripe(away=True))
    with pytest.raises(asyncio.CancelledError):
        await bench.desk.keep_sweeping(900.0)
    assert rests == [60.0, 60.0, 900.0]


async def test_it_keeps_sweeping_through_outages_and_not_by_a_ledger_that_went_back() -> None:
    bench = Bench(Stripe({"evt_1": body("evt_1", "a.g1")}))
    bench.ledger.away_calls = 2
    asked = 0

    def went_back() -> bool:
        nonlocal asked
        asked += 1
        return asked == 1

    task = asyncio.create_task(bench.desk.keep_sweeping(0.001, went_back))
    await asyncio.wait_for(bench.ledger.committed.wait(), 5)
    task.cancel()
    assert asked >= 4
    assert bench.desk.figures.failures == 2
    assert bench.desk.figures.noted == {"sweep": 1}


def test_every_figure_has_its_metric() -> None:
    bench = Bench()
    bench.desk.figures.noted["sweep"] = 2
    bench.desk.figures.refused["signature"] = 1
    bench.desk.figures.ignored["x"] = 1
    assert {name for name, _, _ in report_samples(bench.desk.figures)} == {
        "usage_error_reports_total",
        "usage_error_reports_repeated_total",
        "usage_error_reports_unreadable_total",
        "usage_meter_events_rejected_total",
        "usage_report_sweeps_total",
        "usage_report_failures_total",
        "usage_webhooks_refused_total",
        "usage_webhooks_ignored_total",
    }


KEYS = st.builds(
    lambda name, generation: name if generation is None else f"{name}.g{generation}",
    st.sampled_from([*METER_EVENTS, "foreign"]),
    st.sampled_from([None, 1, 2]),
)
REPORTS = st.lists(st.lists(KEYS, max_size=3), min_size=1, max_size=4)
Step = tuple[str, int]


@st.composite
def schedules(draw: st.DrawFn) -> tuple[list[list[str]], list[Step], list[Step]]:
    """Reports, and two schedules of calls, sweeps and outages that tell all of them."""
    reports = draw(REPORTS)
    numbers = st.integers(0, len(reports) - 1)
    kinds = st.sampled_from(["call", "call", "sweep", "stripe", "ledger", "lost"])
    steps = st.lists(st.tuples(kinds, numbers), max_size=10)
    return reports, draw(steps), draw(steps)


@settings(max_examples=200, deadline=None)
@given(schedules())
def test_any_order_repetition_and_outage_of_webhook_and_sweep_gives_the_same_ledger(
    drawn: tuple[list[list[str]], list[Step], list[Step]],
) -> None:
    reports, one, other = drawn
    first, second = (asyncio.run(play(reports, steps)) for steps in (one, other))
    assert first.says() == second.says()
    assert sorted(first.commits) == sorted(second.commits) == sorted(set(first.noted))


async def play(reports: list[list[str]], steps: list[Step]) -> Ledger:
    """Plays a schedule; at its end Stripe is well and one sweep runs."""
    events = {f"evt_{n}": body(f"evt_{n}", *keys) for n, keys in enumerate(reports)}
    bench = Bench(Stripe(events))
    for kind, number in [*steps, ("well", 0), ("sweep", 0)]:
        if kind == "call":
            await bench.call(f"evt_{number}")
        elif kind == "sweep":
            with contextlib.suppress(LedgerUnavailableError, StripeUnreadableError):
                await bench.desk.sweep(0.0)
        else:
            bench.stripe.away = kind == "stripe"
            bench.ledger.away_calls = number if kind == "ledger" else 0
            bench.ledger.lose_commits = number if kind == "lost" else 0
    return bench.ledger


async def settled_well(reports: list[list[str]], steps: list[Step]) -> None:
    """What holds of every schedule: success means noted, and what was read is noted whole."""
    events = {f"evt_{n}": body(f"evt_{n}", *keys) for n, keys in enumerate(reports)}
    bench = Bench(Stripe(events))
    sent_twice = (Tried(1, "Ambiguous", None), Tried(2, "Recorded", 200))
    bench.ledger.accused["a"] = replace(bench.ledger.accused["a"], tried=sent_twice)
    for kind, number in steps:
        if kind == "ledger":
            bench.ledger.away_calls = number
        elif kind == "lost":
            bench.ledger.lose_commits = number
        elif kind == "call":
            receipt = await bench.call(f"evt_{number}")
            assert (receipt.status == 200) == (f"evt_{number}" in bench.ledger.noted)
        else:
            with contextlib.suppress(LedgerUnavailableError):
                await bench.desk.sweep(0.0)
        if bench.ledger.swept_until is not None:
            assert set(bench.ledger.noted) == set(events)
    assert bench.ledger.says()["a"] == ("dead", "refused")


SCHEDULE: list[Step] = [
    ("ledger", 1),
    ("call", 0),
    ("lost", 1),
    ("sweep", 0),
    ("call", 0),
    ("call", 1),
    ("sweep", 0),
]
_take, _sweep = Rejections._take, Rejections.sweep


def answered_before_it_is_noted(patch: pytest.MonkeyPatch) -> None:
    async def take(self: Rejections, told: Told, noted_by: NotedBy) -> Noted:
        try:
            return await _take(self, told, noted_by)
        except LedgerUnavailableError:
            return Noted(False, 0)

    patch.setattr(Rejections, "_take", take)


def read_before_it_is_noted(patch: pytest.MonkeyPatch) -> None:
    async def sweep(self: Rejections, pause_s: float) -> int | None:
        await self._ledger.swept(1)
        return await _sweep(self, pause_s)

    patch.setattr(Rejections, "sweep", sweep)


SETTLED = [["a.g2"], ["a.g1"]]


async def test_the_schedule_of_the_plants_ends_well_without_them() -> None:
    await settled_well(SETTLED, SCHEDULE)


@pytest.mark.parametrize("plant", [answered_before_it_is_noted, read_before_it_is_noted])
async def test_a_planted_bug_falls(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        await settled_well(SETTLED, SCHEDULE)
