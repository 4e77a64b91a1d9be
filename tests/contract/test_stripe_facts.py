"""The open questions, asked of the stand-in: its own assumptions come back as answers."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from jsonschema import Draft202012Validator

from sandbox.stripe_sandbox.client import StandIn
from sandbox.stripe_sandbox.service import Service, ServiceSettings
from streams.adapters.stripe import StripeSettings, StripeUnreadableError
from streams.cli.main import run
from streams.cli.stripe_facts import PROBES, Answered, Asking, Facts
from streams.cli.stripe_questions import QUESTIONS

SCHEMA = Path(__file__).parents[2] / "schemas/cli/stripe_facts.json"
HOUR_US = 3_600_000_000
KEY = "sk_test_facts"


class MovableClock:
    """The machine's time, moved on by hand."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def now_us(self) -> int:
        return time.time_ns() // 1_000 + self.ahead_us

    def elapsed_s(self) -> float:
        return time.monotonic()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def service(tmp_path: Path, clock: MovableClock) -> AsyncIterator[Service]:
    service = Service(ServiceSettings(tmp_path / "stripe"), clock.now_us)
    service.engine.settings.report_lag_s = -10
    await service.start()
    yield service
    await service.stop()


async def asked(
    service: Service, clock: MovableClock, before: Facts | None = None, wait_s: float = 5
) -> Facts:
    asking = Asking(StripeSettings(KEY, service.url), clock, before)
    await asking.run(wait_s, 0.01, lambda _: None)
    return asking.facts


def one(facts: Facts, name: str) -> Answered:
    return next(each for each in facts.questions if each.id == name)


def told(facts: Facts, name: str) -> dict[str, Any]:
    answer = one(facts, name).answer
    assert answer is not None, one(facts, name).still_open
    return answer


def test_every_question_has_an_experiment_and_says_why_it_matters() -> None:
    assert [question.id for question in QUESTIONS] == list(PROBES)
    for question in QUESTIONS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", question.id)
        assert question.asks.endswith("?")
        assert question.why.endswith(".")
        assert question.assumed.endswith(".")


async def test_the_stand_in_answers_everything_as_the_product_assumes(
    service: Service, clock: MovableClock
) -> None:
    facts = await asked(service, clock)
    assert [q.id for q in facts.questions if q.answer is None] == []
    assert [q.id for q in facts.questions if q.holds is False] == []
    assert [q.id for q in facts.questions if q.still_open] == ["identifier-horizon"]
    assert facts.account == "acct_sandbox"
    assert told(facts, "unknown-customer")["status"] == 200
    assert told(facts, "identifier-and-meter")["second"]["row"] == "duplicate"
    assert told(facts, "stream-duplicate") == {"sent": 2, "counted": "1"}
    assert told(facts, "rejected-identifier")["again"]["row"] == "duplicate"
    assert told(facts, "adjustment-errors")["second"]["status"] == 400
    assert told(facts, "summary-end") == {"ends_there": "0", "begins_there": "1"}
    assert told(facts, "overwrite-order") == {"total": "3", "remains": "the one received last"}
    assert told(facts, "refusal-cached")["kept"] is False
    assert told(facts, "report-names")["named"] == {"identifier": "the idempotency key"}


OTHERWISE: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "a rejection frees the identifier": (
        {"rejected_frees_identifier": True},
        "rejected-identifier",
        {"again": {"status": 200, "row": "recorded"}},
    ),
    "refusals are kept": (
        {"store_validation_errors": True},
        "refusal-cached",
        {"kept": True, "second": {"replayed": True}},
    ),
    "everything is found afterwards": (
        {"asynchronous_validation": True},
        "bad-value",
        {"many": {"status": 200}, "missing": {"status": 200}},
    ),
    "reports name the identifier": (
        {"sample_shape": "identifier"},
        "report-names",
        {"named": {"identifier": "the identifier"}},
    ),
    "reports name the key as a key": (
        {"sample_shape": "key"},
        "report-names",
        {"named": {"idempotency_key": "the idempotency key"}},
    ),
    "nobody is unknown": ({"unknown_customer_prefix": ""}, "unknown-customer", {"status": 200}),
}


@pytest.mark.parametrize(("settings", "name", "answer"), OTHERWISE.values(), ids=OTHERWISE)
async def test_another_stripe_gives_other_answers(
    service: Service,
    clock: MovableClock,
    settings: dict[str, Any],
    name: str,
    answer: dict[str, Any],
) -> None:
    await asyncio.to_thread(lambda: StandIn(service.url).change_settings(**settings))
    facts = await asked(service, clock, wait_s=0.05)

    def within(part: Any, whole: Any) -> bool:
        if isinstance(part, dict):
            return all(within(value, whole[key]) for key, value in part.items())
        return bool(part == whole)

    assert within(answer, told(facts, name)), told(facts, name)


async def test_what_does_not_come_in_time_stays_open(service: Service, clock: MovableClock) -> None:
    service.engine.settings.summary_lag_s = 3_600
    facts = await asked(service, clock, wait_s=0.05)
    lag = one(facts, "summary-lag")
    assert (lag.answer, lag.holds) == (None, None)
    assert lag.still_open == "not within 0.05 s: 1 units in the summaries"
    assert told(facts, "bad-value")


class Later(NamedTuple):
    """A second run, so many hours later, at a Stripe that holds identifiers so long."""

    hours: int
    window_s: int
    held_h: int | None
    free_h: int | None
    holds: bool | None


@pytest.mark.parametrize(
    "later",
    [
        Later(25, 86_400, held_h=None, free_h=25, holds=True),
        Later(25, 200_000, held_h=25, free_h=None, holds=True),
        Later(2, 3_600, held_h=None, free_h=2, holds=False),
        Later(2, 86_400, held_h=2, free_h=None, holds=None),
    ],
    ids=str,
)
async def test_the_horizon_is_found_by_asking_again_later(
    service: Service,
    clock: MovableClock,
    later: Later,
) -> None:
    service.engine.settings.identifier_window_s = later.window_s
    first = await asked(service, clock)
    assert len(first.horizon.kept) == 1
    clock.ahead_us += later.hours * HOUR_US
    second = await asked(service, clock, first)
    found = one(second, "identifier-horizon")
    assert found.holds is later.holds
    whole = {name: s and s // 3_600 for name, s in told(second, "identifier-horizon").items()}
    assert whole == {"refused_until_s": later.held_h, "counted_from_s": later.free_h}
    assert len(second.horizon.kept) == (1 if later.free_h else 2)
    assert second.contradictions == (later.holds is False)


async def test_another_account_knows_nothing_of_what_was_kept(
    service: Service, clock: MovableClock
) -> None:
    first = await asked(service, clock)
    first.account = "acct_of_somebody_else"
    second = await asked(service, clock, first)
    assert told(second, "identifier-horizon")["refused_until_s"] is None


async def test_nothing_goes_anywhere_but_to_the_given_address(
    service: Service, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: set[object] = set()
    connect = socket.socket.connect

    def seen(self: socket.socket, address: Any) -> None:
        reached.add(address)
        connect(self, address)

    def asked_for(host: object, *_: object, **__: object) -> None:
        reached.add(host)
        raise OSError

    monkeypatch.setattr(socket.socket, "connect", seen)
    monkeypatch.setattr(socket, "getaddrinfo", asked_for)
    await asked(service, clock)
    assert reached == {("127.0.0.1", service.port)}


async def test_stripe_going_away_leaves_what_was_answered(
    service: Service, clock: MovableClock
) -> None:
    path = "/v1/billing/meter_event_adjustments"
    match = {"path": path}
    await asyncio.to_thread(lambda: StandIn(service.url).arm(kind="drop_before", match=match))
    asking = Asking(StripeSettings(KEY, service.url), clock, None)
    with pytest.raises(StripeUnreadableError, match=path):
        await asking.run(5, 0.01, lambda _: None)
    assert told(asking.facts, "stream-duplicate")
    assert one(asking.facts, "cancelled-identifier").answer is None


async def ask_at(service: Service, *more: str) -> int:
    words = ["drill", "stripe-facts", "--api-base", service.url, *more]
    return await asyncio.to_thread(run, words)


async def test_the_command_keeps_its_answers_and_prints_them(
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_STRIPE_API_KEY", "rk_test_facts")
    assert await ask_at(service) == 0
    shown = capsys.readouterr()
    assert "16 of 16 answered, 0 not as assumed, 1 still open" in shown.err
    assert re.search(r"^summary-end +as assumed +0 in the range", shown.out, re.MULTILINE)
    kept = msgspec.json.decode((tmp_path / "build/stripe-facts.json").read_bytes())
    Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes())).validate(kept)
    assert kept["api_base"] == service.url
    service.engine.settings.identifier_window_s = 0
    assert await ask_at(service, "--json", "--wait", "1s") == 1
    shown = capsys.readouterr()
    document = msgspec.json.decode(shown.out)
    Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes())).validate(document)
    (found,) = (q for q in document["questions"] if q["holds"] is False)
    assert found["id"] == "identifier-horizon"
    assert "rk_test_facts" not in shown.out + shown.err


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_without_a_key_the_questions_are_listed(
    more: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_STRIPE_API_KEY", raising=False)
    assert run(["drill", "stripe-facts", *more]) == 0
    shown = capsys.readouterr()
    assert "TAILRACE_STRIPE_API_KEY" in shown.err
    assert list(tmp_path.iterdir()) == []
    for question in QUESTIONS:
        for text in question:
            assert text in shown.out


@pytest.mark.parametrize(
    ("key", "live", "refused"),
    [
        ("sk_live_1", "1", (78, "not a test key")),
        ("rk_live_1", "1", (78, "not a test key")),
        ("sk_live_1", "0", (78, "")),
        ("whsec_1", "0", (78, "not a test key")),
        ("sk_test_1", "0", (69, "account: Stripe was not reached")),
    ],
)
def test_a_key_that_is_not_for_trying_is_refused_before_anything_is_sent(
    key: str,
    live: str,
    refused: tuple[int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_STRIPE_API_KEY", key)
    monkeypatch.setenv("TAILRACE_LIVE", live)
    assert run(["drill", "stripe-facts", "--api-base", "http://127.0.0.1:1"]) == refused[0]
    shown = capsys.readouterr()
    assert refused[1] in shown.err
    assert key not in shown.out + shown.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_something_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.json"
    file.write_text("[1]")
    monkeypatch.setenv("TAILRACE_STRIPE_API_KEY", KEY)
    words = ["drill", "stripe-facts", "--api-base", "http://127.0.0.1:1", "--out", str(file)]
    assert run(words) == 78
    assert "name another file" in capsys.readouterr().err
    assert file.read_text() == "[1]"
