"""Apply, guarded start, protection and healing: a real database, and a Connect the test plays."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from connectors.apply import Health, Outcome, Patience, apply, heal, protect, start
from connectors.capture import Capture
from connectors.errors import (
    CaptureUnsafeError,
    ConfigRefusedError,
    SourceUnavailableError,
    StateNotReachedError,
)
from connectors.guard_findings import Start
from tests.integration.connectors.outbox import Outbox
from tests.unit.connectors.fake_connect import FakeConnect, FakeTime

pytestmark = pytest.mark.postgres


def running(fake: FakeConnect, capture: Capture, position: int, task: str = "RUNNING") -> None:
    fake.add(capture.name, capture.config)
    fake.task_states[capture.name] = task
    stored = {"partition": {"server": "src.shop"}, "offset": {"lsn_commit": position}}
    fake.offsets[capture.name] = [stored]


def make_unsafe(outbox: Outbox) -> None:
    outbox.record("k1")
    outbox.advance()


def test_a_new_connector_is_created_stopped_then_started_behind_the_guard(
    capture: Capture, fake: FakeConnect
) -> None:
    applied = apply(capture)
    assert applied.outcome is Outcome.CREATED
    assert {change.option for change in applied.changes} == set(capture.config)
    assert fake.states[capture.name] == "STOPPED"
    assert start(capture, Start.FIRST).all_running


def test_an_equal_config_is_not_written_again(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    assert apply(capture).outcome is Outcome.UNCHANGED
    assert fake.wrote() == []


def test_a_changed_config_restarts_a_running_connector_through_stop_and_guard(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    fake.configs[capture.name]["poll.interval.ms"] = "100"
    applied = apply(capture)
    assert applied.outcome is Outcome.UPDATED
    assert [str(change) for change in applied.changes] == ["~ poll.interval.ms = 100 -> 50"]
    verbs = [call.rsplit("/", 1)[1] for call in fake.wrote()]
    assert verbs == ["stop", "config", "stop", "resume"]
    assert fake.states[capture.name] == "RUNNING"


def test_a_changed_config_leaves_a_stopped_connector_stopped(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    fake.states[capture.name] = "STOPPED"
    fake.configs[capture.name]["poll.interval.ms"] = "100"
    assert apply(capture).outcome is Outcome.UPDATED
    assert fake.states[capture.name] == "STOPPED"


@pytest.mark.parametrize("state", ["STOPPED", "PAUSED"])
def test_what_a_person_stopped_is_started_by_an_equal_config_from_where_it_stopped(
    capture: Capture, outbox: Outbox, fake: FakeConnect, state: str
) -> None:
    running(fake, capture, outbox.confirmed(), task="PAUSED")
    fake.states[capture.name] = state
    position = fake.offsets[capture.name]
    assert apply(capture).outcome is Outcome.UNCHANGED
    assert start(capture).all_running
    verbs = [call.rsplit("/", 1)[1] for call in fake.wrote()]
    assert verbs == ["stop", "resume"]
    assert fake.offsets[capture.name] == position


def test_an_unsafe_config_never_reaches_connect(capture: Capture, fake: FakeConnect) -> None:
    settings = replace(capture.settings, host="db.example.com")
    with pytest.raises(ConfigRefusedError, match=r"database\.sslmode"):
        apply(replace(capture, settings=settings))
    assert fake.wrote() == []


def test_a_worker_with_a_version_that_loses_rows_gets_no_connector(
    capture: Capture, fake: FakeConnect
) -> None:
    for plugin in fake.plugins:
        plugin["version"] = "3.6.1.Final"
    with pytest.raises(ConfigRefusedError, match="lose committed rows"):
        apply(capture)
    assert fake.wrote() == []


def test_what_connect_itself_finds_wrong_is_shown_and_nothing_is_written(
    capture: Capture, fake: FakeConnect
) -> None:
    fake.validation_errors = {"database.hostname": ["Connection refused"]}
    with pytest.raises(ConfigRefusedError, match=r"database\.hostname: Connection refused"):
        apply(capture)
    assert fake.wrote() == []


def test_an_unsafe_slot_is_never_started(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    fake.states[capture.name] = "STOPPED"
    make_unsafe(outbox)
    with pytest.raises(CaptureUnsafeError, match="slot-ahead"):
        start(capture)
    assert fake.states[capture.name] == "STOPPED"
    assert not any("resume" in call for call in fake.calls)


def test_an_unsafe_slot_stops_a_connector_that_runs(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    make_unsafe(outbox)
    with pytest.raises(CaptureUnsafeError, match="slot-ahead"):
        start(capture)
    assert fake.states[capture.name] == "STOPPED"


def test_starting_what_runs_healthily_changes_nothing(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    assert start(capture).all_running
    assert fake.wrote() == []


def test_a_slot_still_held_by_the_old_reader_is_waited_for_then_refused(
    capture: Capture, outbox: Outbox, fake: FakeConnect, time: FakeTime
) -> None:
    running(fake, capture, outbox.confirmed())
    fake.states[capture.name] = "STOPPED"
    with outbox.reading(), pytest.raises(CaptureUnsafeError, match="slot-taken"):
        start(capture)
    assert 14 < sum(time.waits_s) < 20


def test_a_connector_that_does_not_come_up_says_its_first_line(
    capture: Capture, fake: FakeConnect
) -> None:
    apply(capture)
    fake.comes_up = ["FAILED"]
    fake.traces[capture.name] = "org.example.Boom: why\n\tat deep"
    with pytest.raises(StateNotReachedError, match=r"org\.example\.Boom: why"):
        start(capture, Start.FIRST)


def test_the_check_of_every_minute_stops_for_danger_and_only_for_danger(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    assert [finding.rule for finding in protect(capture)] == ["slot-idle"]
    assert fake.states[capture.name] == "RUNNING"
    make_unsafe(outbox)
    assert protect(capture)[0].rule == "slot-ahead"
    assert fake.states[capture.name] == "STOPPED"


def test_while_the_database_is_away_the_check_says_so_and_changes_nothing(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed())
    with pytest.raises(SourceUnavailableError):
        protect(replace(capture, connect=_away))
    assert fake.wrote() == []


def test_a_failed_task_is_restarted_once_and_left_in_peace(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed(), task="FAILED")
    healed = heal(capture)
    assert (healed.health, healed.restarts) == (Health.RUNNING, 1)
    again = heal(capture)
    assert (again.health, again.restarts) == (Health.RUNNING, 0)


def test_a_task_that_goes_on_failing_is_given_up_after_growing_pauses(
    capture: Capture, outbox: Outbox, fake: FakeConnect, time: FakeTime
) -> None:
    running(fake, capture, outbox.confirmed(), task="FAILED")
    fake.comes_up = ["FAILED"] * 10
    healed = heal(capture, Patience(attempts_max=4))
    assert (healed.health, healed.restarts) == (Health.FAILED, 4)
    assert time.waits_s == [0.75, 1.5, 3.0, 6.0]
    assert capture.name in fake.configs


def test_a_task_that_runs_for_a_moment_and_fails_again_is_not_called_healed(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed(), task="FAILED")
    fake.fails_soon = 10
    healed = heal(capture, Patience(attempts_max=2))
    assert (healed.health, healed.restarts) == (Health.FAILED, 2)


def test_a_failed_task_over_an_unsafe_slot_is_stopped_not_restarted(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed(), task="FAILED")
    make_unsafe(outbox)
    healed = heal(capture)
    assert (healed.health, healed.restarts) == (Health.REFUSED, 0)
    assert [finding.rule for finding in healed.findings] == ["slot-ahead"]
    assert fake.states[capture.name] == "STOPPED"


@pytest.mark.parametrize("state", ["STOPPED", "PAUSED"])
def test_what_a_person_stopped_stays_stopped(
    capture: Capture, outbox: Outbox, fake: FakeConnect, state: str
) -> None:
    running(fake, capture, outbox.confirmed(), task="PAUSED")
    fake.states[capture.name] = state
    assert heal(capture).health is Health.LEFT_ALONE
    assert fake.wrote() == []


def test_while_the_database_is_away_nothing_is_restarted(
    capture: Capture, outbox: Outbox, fake: FakeConnect
) -> None:
    running(fake, capture, outbox.confirmed(), task="FAILED")
    healed = heal(replace(capture, connect=_away))
    assert (healed.health, healed.restarts) == (Health.FAILED, 0)
    assert fake.wrote() == []


def _away() -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect("host=127.0.0.1 port=1 user=x", autocommit=True)
