"""Our requests of v1 against Stripe's own description of them, the stand-in's answers beside it.

stripe-mock knows nothing of v2, of keys, of limits and of duplicates; those are the stand-in's.
Where it cannot be had the outcome is `not run`, and says why.
"""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sandbox.stripe_sandbox.service import Service, ServiceSettings
from streams.adapters.stripe import StripeSettings, StripeSink
from streams.core.meter_event import Cell, MeterEvent, Origin, freeze_window
from streams.core.observation import Answer
from tests.support import stripe_mock
from tests.support.not_run import not_run

pytestmark = pytest.mark.timeout(stripe_mock.BUILD_S_MAX + 60)
ROOT = Path(__file__).parents[2]
HOUR_US = 3_600_000_000
START_S = 1_795_975_200
FORM = {"event_name": "api_calls", "display_name": "A", "default_aggregation[formula]": "sum"}
EVENT = {
    "event_name": "api_calls",
    "identifier": "id-1",
    "payload[stripe_customer_id]": "cus_1",
    "payload[value]": "5",
}


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        program = stripe_mock.find()
    except stripe_mock.MissingError as error:
        not_run(f"request shapes against stripe-mock: {error}")
    log = tmp_path_factory.mktemp("mock") / "log"
    with stripe_mock.running(program, log) as address:
        yield address


@pytest.fixture
async def stand_in(tmp_path: Path) -> AsyncIterator[str]:
    service = Service(ServiceSettings(tmp_path), lambda: time.time_ns() // 1_000)
    service.create_meters(["api_calls"])
    await service.start()
    yield service.url
    await service.stop()


@pytest.fixture
async def sink(mock: str) -> AsyncIterator[StripeSink]:
    async with StripeSink(StripeSettings("sk_test_123", mock)) as sink:
        yield sink


def meter_event(value: int) -> MeterEvent:
    start_us = time.time_ns() // 1_000 // HOUR_US * HOUR_US
    cell = Cell("cus_1", "api_calls", start_us, start_us + HOUR_US)
    origin = Origin("acct", livemode=False, ledger_id="l")
    return freeze_window(origin, cell, value, 1, 1, start_us)


async def call(method: str, url: str, **how: Any) -> tuple[int, Any]:
    headers = {"Authorization": "Bearer sk_test_123"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url, **how) as response,
    ):
        return response.status, msgspec.json.decode(await response.read())


@pytest.mark.parametrize("value", [5, -5, 999_999_999_999_999])
async def test_a_meter_event_as_we_send_it_is_one_by_stripes_description(
    sink: StripeSink, value: int
) -> None:
    event = meter_event(value)
    seen = await sink.send(event, event.idempotency_key(1))
    assert isinstance(seen, Answer)
    assert (seen.status, seen.parsed, seen.identifier) == (200, True, event.identifier)


async def test_our_reads_are_as_stripe_describes_them(sink: StripeSink) -> None:
    assert await sink.account_id()
    [meter] = await sink.meters()
    assert (await sink.meter(meter.id)).event_name == meter.event_name
    for grouping in (None, "hour", "day"):
        await sink.event_summaries("cus_1", meter.id, START_S, START_S + 86_400, grouping)


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({**EVENT, "surprise": "1"}, "surprise"),
        ({name: text for name, text in EVENT.items() if name != "event_name"}, "event_name"),
        ({"event_name": "api_calls"}, "payload"),
        ({**EVENT, "timestamp": "soon"}, "timestamp"),
    ],
)
async def test_what_stripe_s_description_refuses_the_stand_in_refuses(
    mock: str, stand_in: str, form: dict[str, str], param: str
) -> None:
    for base in (mock, stand_in):
        status, body = await call("POST", f"{base}/v1/billing/meter_events", data=form)
        assert (status, body["error"]["type"]) == (400, "invalid_request_error"), (base, body)
        assert base == mock or param in str(body["error"]), body


@pytest.mark.parametrize(
    ("method", "path", "how"),
    [
        ("POST", "meter_events", {"data": EVENT}),
        ("POST", "meters", {"data": {**FORM, "event_name": "exports"}}),
        ("GET", "meters/{meter}", {}),
        ("GET", "meters", {}),
        (
            "POST",
            "meter_event_adjustments",
            {"data": {"event_name": "api_calls", "type": "cancel", "cancel[identifier]": "id-1"}},
        ),
        (
            "GET",
            "meters/{meter}/event_summaries",
            {"params": {"customer": "cus_1", "start_time": "0", "end_time": "3600"}},
        ),
    ],
)
async def test_the_stand_ins_answers_have_the_fields_that_stripe_describes(
    mock: str, stand_in: str, method: str, path: str, how: dict[str, Any]
) -> None:
    await call("POST", f"{stand_in}/v1/billing/meter_events", data={**EVENT, "identifier": "id-1"})
    meters = (await call("GET", f"{stand_in}/v1/billing/meters"))[1]["data"]
    url = "/v1/billing/" + path.format(meter=meters[0]["id"])
    if path == "meter_events":
        how = {"data": {**EVENT, "identifier": "id-2"}}
    (status, theirs), (own_status, ours) = [
        await call(method, base + url, **how) for base in (mock, stand_in)
    ]
    assert (status, own_status) == (200, 200), (theirs, ours)
    assert fields(ours) >= fields(theirs)


def fields(body: dict[str, Any]) -> set[str]:
    """Names of an object, or of a list and what is in it."""
    rows = body.get("data")
    inner = {f"data.{name}" for name in rows[0]} if isinstance(rows, list) and rows else set()
    return set(body) | inner


def test_where_it_cannot_be_had_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(stripe_mock.MissingError, match="neither stripe-mock nor Go"):
        stripe_mock.find(tmp_path / "cache")
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'module: not found' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(stripe_mock.MissingError, match="not found"):
        stripe_mock.find(tmp_path / "cache")


def test_a_check_that_was_not_made_is_an_outcome_of_its_own(tmp_path: Path) -> None:
    checks = tmp_path / "test_checks.py"
    checks.write_text(
        "from tests.support.not_run import not_run\n"
        "def test_one(): not_run('Go is missing')\n"
        "def test_two(): pass\n"
    )
    plain = ("-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "tests.conftest")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, str(checks)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "not run: test_checks.py::test_one: Go is missing" in ran.stdout
    assert "1 passed, 1 not run" in ran.stdout
