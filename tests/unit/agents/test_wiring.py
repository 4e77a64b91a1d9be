"""Settings to the parts of one worker: nothing shared that must not be, nothing touched early."""

import asyncio
import signal
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streams import worker
from streams.adapters.clock import SystemClock
from streams.core.identity import log_uuid
from streams.core.orders import HeldRecord, fingerprint
from streams.engine.fail_stop import FailStop
from streams.engine.log import LogId, Record
from streams.settings import load
from streams.stripe_access import stripe_settings
from streams.worker import HOUR_MS, build, crash_hook, engine_settings
from tests.support.waiting import eventually
from tests.unit.agents.outside import TOPIC_ID
from tests.unit.agents.parts import SETTINGS

# -- the worker's wiring --------------------------------------------------------------------------


def test_building_a_worker_touches_nothing() -> None:
    """The data directory does not exist, nor a broker, nor a ledger."""
    service = build(SETTINGS)
    assert service.parts is None


def test_the_engine_is_told_what_the_settings_say() -> None:
    engine = engine_settings(SETTINGS, "host:1:abc")
    assert (engine.topic, engine.packed_topic) == ("usage.events", "usage.admit-log")
    assert engine.horizon_ms == 168 * HOUR_MS
    assert engine.reach_back_ms == (168 + 24) * HOUR_MS
    assert engine.settle_deadline_s == 60
    assert engine.fetch_wait_s == 0.01
    assert engine.instance_id is None
    assert engine.client_id == "host:1:abc"


def test_a_request_is_over_before_its_lease() -> None:
    stripe = stripe_settings(SETTINGS)
    assert stripe.connect_timeout_s + stripe.read_timeout_s == stripe.deadline_s
    assert 2 * stripe.deadline_s <= SETTINGS.publish_lease_s
    assert stripe.connections_max == SETTINGS.publish_lanes


async def test_each_user_of_output_topics_has_a_producer_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shared, one would be told of the other's failure, and the other of none."""
    made: list[object] = []

    def producer(_config: object) -> object:
        made.append(object())
        return made[-1]

    monkeypatch.setattr(worker, "OutputProducer", producer)

    made_of = worker._parts(SETTINGS, SystemClock(), FailStop(lambda _code: None), "w")
    for resource in made_of.resources:
        await resource.close()
    assert made_of.admitter._outputs is made[0] or made_of.admitter._outputs is made[1]
    assert made_of.dead_letters._outputs is not made_of.admitter._outputs


def test_in_production_no_step_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda *struck: killed.append(struck))
    crash_hook(SETTINGS)("decided")
    assert killed == []
    hook = crash_hook(load({"TAILRACE_CRASH_AT": "decided:2"}))
    hook("decided")
    assert killed == []
    hook("decided")
    assert killed == [(threading.get_ident(), signal.SIGKILL)]


def test_a_hook_strikes_the_thread_that_reached_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not get any further; another thread may be the one that feels the signal first."""
    struck: list[tuple[int, int]] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda *strike: struck.append(strike))
    hook = crash_hook(load({"TAILRACE_CRASH_AT": "fetched:1:SIGSTOP"}))
    feeder = threading.Thread(target=hook, args=("fetched",))
    feeder.start()
    feeder.join()
    assert struck == [(feeder.ident, signal.SIGSTOP)]


async def test_a_record_that_the_feeder_gives_up_is_noted_on_the_loop() -> None:
    noted: list[tuple[HeldRecord, int]] = []
    holds = cast("Any", SimpleNamespace(note=lambda h: noted.append((h, threading.get_ident()))))
    given_up = worker._on_loop(asyncio.get_running_loop(), holds)
    log_id, record = LogId("usage.events", TOPIC_ID, 3), Record(10, 0, b"k", b"value")
    feeder = threading.Thread(target=given_up, args=(log_id, record, "it kills"))
    feeder.start()
    feeder.join()
    await eventually("the note", lambda: bool(noted))
    held = HeldRecord(log_uuid(TOPIC_ID), 3, 10, fingerprint(b"k", b"value"), "it kills", 5)
    assert noted == [(held, threading.get_ident())]
