"""Settings to the parts of one worker: nothing shared that must not be, nothing touched early."""

import signal
import threading

import pytest

from streams import worker
from streams.adapters.clock import SystemClock
from streams.engine.fail_stop import FailStop
from streams.settings import load
from streams.stripe_access import stripe_settings
from streams.worker import HOUR_MS, build, crash_hook, engine_settings
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
    assert engine.fetch_wait_s == 0.1
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
