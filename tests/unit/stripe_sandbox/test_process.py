"""The stand-in as a process: killed, restarted, and told nonsense."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import requests

from sandbox.stripe_sandbox.client import OrderRefusedError, StandIn
from tests.unit.stripe_sandbox.driver import KEY

METERS = '[meters.calls]\nevent_name = "api_calls"\n[[meters.store]]\nevent_name = "storage"\n'


@asynccontextmanager
async def running(directory: Path, *options: str) -> AsyncIterator[tuple[str, int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandbox.stripe_sandbox",
        "--state-dir",
        str(directory),
        *options,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if process.stdout is None:
            pytest.fail("no output to read the address from")
        line = (await process.stdout.readline()).decode()
        assert line.startswith("stripe stand-in ready: "), line
        yield line.split()[3], process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def call(method: str, url: str, **arguments: Any) -> Any:
    async with (
        aiohttp.ClientSession(headers={"Authorization": KEY}) as session,
        session.request(method, url, **arguments) as response,
    ):
        return msgspec.json.decode(await response.read())


def event(number: int, **more: str) -> dict[str, str]:
    return {
        "event_name": "api_calls",
        "identifier": f"id-{number}",
        "payload[stripe_customer_id]": "cus_1",
        "payload[value]": "5",
        **more,
    }


async def test_a_killed_stand_in_forgets_nothing(tmp_path: Path) -> None:
    meters = tmp_path / "meters.toml"
    meters.write_text(METERS)
    options = ("--meters", str(meters))
    async with running(tmp_path / "state", *options) as (url, pid):
        for number in range(20):
            await call("POST", f"{url}/v1/billing/meter_events", data=event(number))
        before = await call("GET", f"{url}/_sandbox/oracle")

        os.kill(pid, signal.SIGKILL)
    async with running(tmp_path / "state", *options) as (url, _pid):
        assert await call("GET", f"{url}/_sandbox/oracle") == before
        again = await call("POST", f"{url}/v1/billing/meter_events", data=event(3))
        assert "already exists" in again["error"]["message"]
        listed = await call("GET", f"{url}/v1/billing/meters")
        assert {meter["event_name"] for meter in listed["data"]} == {"api_calls", "storage"}


async def test_the_client_orders_faults_and_asks_for_what_was_recorded(tmp_path: Path) -> None:
    meters = tmp_path / "meters.toml"
    meters.write_text(METERS)
    async with running(tmp_path / "state", "--meters", str(meters)) as (url, _pid):
        stand_in = StandIn(url)
        armed = await asyncio.to_thread(lambda: stand_in.arm(kind="429", count=2))
        assert (armed["id"], armed["kind"], armed["struck"]) == (1, "429", 0)
        with pytest.raises(OrderRefusedError, match="earthquake"):
            await asyncio.to_thread(lambda: stand_in.arm(kind="earthquake"))
        await asyncio.to_thread(stand_in.clear_faults)
        assert (await call("GET", f"{url}/_sandbox/faults"))["faults"] == []
        assert await asyncio.to_thread(stand_in.oracle) == []
        await call("POST", f"{url}/v1/billing/meter_events", data=event(1))
        [recorded] = await asyncio.to_thread(stand_in.oracle)
        assert (recorded["identifier"], recorded["counted"]) == ("id-1", 1)
    with pytest.raises(requests.ConnectionError):
        await asyncio.to_thread(stand_in.oracle)


async def test_the_oracle_tells_the_multiset_and_the_sums(tmp_path: Path) -> None:
    meters = tmp_path / "meters.toml"
    meters.write_text(METERS)
    options = ("--meters", str(meters), "--identifier-window", "0s")
    async with running(tmp_path / "state", *options) as (url, _pid):
        for number in (1, 1, 2):
            await call("POST", f"{url}/v1/billing/meter_events", data=event(number))
        unknown = {"payload[stripe_customer_id]": "cus_unknown_1"}
        await call("POST", f"{url}/v1/billing/meter_events", data=event(3, **unknown))
        oracle = await call("GET", f"{url}/_sandbox/oracle")
        counted = [(row["identifier"], row["counted"]) for row in oracle["events"]]
        assert counted == [("id-1", 2), ("id-1", 2), ("id-2", 1), ("id-3", 0)]
        assert sum(int(row["value"]) for row in oracle["sums"]) == 15
        assert oracle["events"][3]["refused"] == "meter_event_customer_not_found"
        seen = await call("GET", f"{url}/_sandbox/requests")
        assert seen == {"POST /v1/billing/meter_events": 4, "status 200": 4}


async def test_faults_and_settings_are_ordered_seen_and_refused_by_name(tmp_path: Path) -> None:
    async with running(tmp_path) as (url, _pid):
        faults = f"{url}/_sandbox/faults"
        fault = await call("POST", faults, data=b'{"kind":"429","match":{"customer":"cus_1"}}')
        assert (fault["id"], fault["struck"], fault["kind"]) == (1, 0, "429")
        listed = await call("GET", faults)
        assert listed["faults"][0]["match"]["customer"] == "cus_1"
        assert "outage" in listed["kinds"]
        for wrong in (
            b"{}",
            b'{"kind":"earthquake"}',
            b'{"kind":"429","probability":2}',
            b'{"kind":"429","count":0}',
            b'{"kind":"refuse"}',
            b'{"kind":"429","who":1}',
        ):
            assert "error" in await call("POST", faults, data=wrong)
        assert "error" in await call("DELETE", f"{faults}/x")
        assert (await call("DELETE", f"{faults}/1"))["faults"] == []
        assert (await call("DELETE", faults))["faults"] == []
        settings = f"{url}/_sandbox/settings"
        assert (await call("POST", settings, data=b'{"summary_lag_s":9}'))["summary_lag_s"] == 9
        assert (await call("GET", settings))["rate_limit"] == 1_000
        assert "error" in await call("POST", settings, data=b'{"summary_lag_s":"x"}')
        assert "error" in await call("POST", settings, data=b'{"colour":1}')
        assert (await call("GET", f"{url}/healthz"))["status"] == "ok"


async def test_subscriptions_are_remembered_and_their_invoices_shown(tmp_path: Path) -> None:
    order = {"id": "sub_1", "customer": "cus_1", "event_names": ["api_calls"], "anchor_s": 0}
    hourly = msgspec.json.encode({**order, "interval": "hour", "grace_s": 0})
    options = ("--auto-create-meters",)
    async with running(tmp_path, *options) as (url, pid):
        subscriptions = f"{url}/_sandbox/subscriptions"
        assert (await call("POST", subscriptions, data=hourly))["interval"] == "hour"
        too_long = msgspec.json.encode({**order, "grace_s": 259_201})
        assert "72 hours" in (await call("POST", subscriptions, data=too_long))["error"]
        assert "error" in await call("POST", subscriptions, data=b"{}")
        await call("POST", f"{url}/v1/billing/meter_events", data=event(1))
        os.kill(pid, signal.SIGKILL)
    async with running(tmp_path, *options) as (url, _pid):
        (line,) = (await call("GET", f"{url}/_sandbox/invoices"))["lines"]
        assert (line["customer"], line["quantity"], line["unbilled"]) == ("cus_1", "5", "0")
        (shown,) = (await call("GET", f"{url}/v1/subscriptions"))["data"]
        assert shown["id"] == "sub_1"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--state-dir", "{tmp}", "--identifier-window", "1 day"], 2, "24h"),
        (["--state-dir", "{tmp}", "--meters", "{tmp}/none.toml"], 78, "none.toml"),
        (["--state-dir", "{tmp}", "--meters", "{tmp}/bad.toml"], 78, "meters.x.event_name"),
        (["--state-dir", "{tmp}/damaged"], 78, "line 1"),
        (["--port", "70000"], 2, "65535"),
    ],
)
async def test_nonsense_is_refused_without_a_traceback(
    tmp_path: Path, options: list[str], code: int, words: str
) -> None:
    (tmp_path / "bad.toml").write_text("[meters.x]\n")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "journal.jsonl").write_text("nonsense\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandbox.stripe_sandbox",
        *(option.replace("{tmp}", str(tmp_path)) for option in options),
        stderr=asyncio.subprocess.PIPE,
        env={"NO_COLOR": "1", "COLUMNS": "200", "PYTHONPATH": str(Path.cwd())},
    )
    _, stderr = await process.communicate()
    said = stderr.decode()
    assert process.returncode == code, said
    assert words in said
    assert "Traceback" not in said


def is_there(directory: Path) -> bool:
    return directory.is_dir()


async def test_alone_it_prints_address_and_key_and_forgets_all_at_ctrl_c() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "streams.cli.main", "stripe-sandbox", "--auto-create-meters",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode().strip() for _ in range(4)]
    ready, *settings = lines
    assert ready.startswith("stripe stand-in ready: http://127.0.0.1:")
    url, directory = ready.split()[3], Path(ready.split()[-1].rstrip(")"))
    key = settings[1].removeprefix("TAILRACE_STRIPE_API_KEY=")
    assert settings[0] == f"TAILRACE_STRIPE_API_BASE={url}"
    assert settings[2].startswith("TAILRACE_STRIPE_WEBHOOK_SECRET=whsec_")
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
        session.post(f"{url}/v1/billing/meter_events", data=event(1)) as answer,
    ):
        assert answer.status == 200
    assert is_there(directory)

    process.send_signal(signal.SIGINT)

    _, said = await process.communicate()
    assert (process.returncode, said) == (0, b"")
    assert not is_there(directory)


async def refused(*options: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandbox.stripe_sandbox",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()


async def test_a_second_stand_in_does_not_remember_where_one_does(tmp_path: Path) -> None:
    async with running(tmp_path):
        code, said = await refused("--state-dir", str(tmp_path))
        assert code == 75
        assert f"{tmp_path}: another stand-in that runs remembers there" in said
        assert "give another --state-dir" in said


@pytest.mark.parametrize("url", ["foo", "ftp://host/x", "http://", "http://host:99999/x"])
async def test_a_webhook_address_that_cannot_be_called_is_refused(url: str) -> None:
    code, said = await refused("--webhook-url", url)
    assert code == 2
    assert "--webhook-url" in said
    assert "http:// or https://" in said
