"""Changes a connector towards what is wanted, each start behind the slot guard.

`apply` writes a config, and only when it differs, because each restart is a moment at which rows
can be repeated. `start` is the one way to let rows flow. `protect` is the check of every minute.
`heal` restarts what failed, with growing pauses. Nothing here deletes a connector, a position or a
slot.
"""

from dataclasses import dataclass
from enum import StrEnum

from connectors.capture import Capture
from connectors.config_diff import Change, diff
from connectors.connect_answers import ConnectorStatus
from connectors.connect_client import not_reached
from connectors.errors import (
    CaptureUnsafeError,
    ConfigRefusedError,
    SourceUnavailableError,
    StateNotReachedError,
)
from connectors.guard_findings import GuardFinding, Start, must_stop
from connectors.linter import lint, lint_plugins

STOP_WITHIN_S = 30.0
RELEASE_WITHIN_S = 15.0
"""How long the database may take to notice that the slot's reader has gone."""
START_WITHIN_S = 60.0


class Outcome(StrEnum):
    """What `apply` did."""

    CREATED = "created"
    """The connector is new, and stopped: start it."""
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did, and to which options."""

    outcome: Outcome
    changes: tuple[Change, ...]


class Health(StrEnum):
    """How `heal` left a connector."""

    RUNNING = "running"
    """It runs, whether or not something had to be restarted."""
    LEFT_ALONE = "left-alone"
    """Somebody stopped or paused it; that is respected."""
    REFUSED = "refused"
    """The guard found rows in danger; it is stopped now."""
    FAILED = "failed"
    """It still fails after every attempt."""


@dataclass(frozen=True, slots=True)
class Healed:
    """What `heal` found and did."""

    health: Health
    restarts: int
    status: ConnectorStatus
    findings: tuple[GuardFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long `heal` tries."""

    attempts_max: int = 5
    first_pause_s: float = 1.0
    """Upper bound of the pause before the second attempt; it doubles."""
    longest_pause_s: float = 60.0
    settle_s: float = 30.0
    """How long a restart may take until it runs or has failed again."""
    steady_s: float = 5.0
    """How long it must run to count: a task runs for a moment before it meets its trouble again."""


_PATIENT = Patience()


def apply(capture: Capture, why: Start = Start.GO_ON) -> Applied:
    """Make Connect hold the wanted config; the connector keeps running or keeps standing.

    Args:
        capture: of the source.
        why: what `start` is told where a running connector must be restarted.

    Raises:
        ConfigRefusedError: the linter, the plugins or Connect's validation refuse; nothing changed.
        CaptureUnsafeError: it ran, had to be restarted, and the guard refuses; it stays stopped.
        ConnectError: Connect is away or says no.
    """
    client, name, wanted = capture.client, capture.name, capture.config
    _refuse_unsafe(capture)
    held = client.config(name)
    changes = diff(held, wanted)
    if not changes:
        return Applied(Outcome.UNCHANGED, ())
    problems = client.validate(name, wanted).problems
    if problems:
        raise ConfigRefusedError(name, problems)
    if held is None:
        client.create_stopped(name, wanted)
        return Applied(Outcome.CREATED, changes)
    ran = not client.status(name).stopped
    if ran:
        client.stop_and_wait(name, within_s=STOP_WITHIN_S)
    client.put_config(name, wanted)
    if ran:
        start(capture, why)
    return Applied(Outcome.UPDATED, changes)


def start(capture: Capture, why: Start = Start.GO_ON) -> ConnectorStatus:
    """Let rows flow, if the guard allows it; a connector that runs already is only looked at.

    Args:
        capture: of the source; its config must have been applied.
        why: `Start.FIRST` right after registration, `Start.REPAIR` inside a repair.

    Raises:
        CaptureUnsafeError: the guard refuses; the connector is stopped.
        StateNotReachedError: it did not come to run in time; the text holds the reason.
        SourceUnavailableError: the database is away, so nothing can be judged; it stays stopped.
    """
    client, name = capture.client, capture.name
    if client.status(name).all_running:
        protect_or_raise(capture, why)
        return client.status(name)
    client.stop_and_wait(name, within_s=STOP_WITHIN_S)
    _raise_unsafe(name, _look_when_released(capture, why))
    client.resume(name)
    status = client.await_state(
        name,
        lambda status: status.all_running or status.failed,
        what="running",
        within_s=START_WITHIN_S,
    )
    if status.failed:
        raise not_reached(name, status, "running")
    return status


def protect(capture: Capture, canary_age_s: float | None = None) -> list[GuardFinding]:
    """The check of every minute: stop the connector if rows are in danger.

    Args:
        capture: of the source.
        canary_age_s: age of the oldest partition's canary, when known.

    Returns:
        Every finding, worst first; alarms leave the connector as it is.

    Raises:
        SourceUnavailableError: the database is away; the connector is left as it is, since nothing
            can flow from there.
        ConnectError: Connect is away.
    """
    findings = capture.look(Start.GO_ON, canary_age_s)
    if must_stop(findings) and capture.client.config(capture.name) is not None:
        capture.client.stop_and_wait(capture.name, within_s=STOP_WITHIN_S)
    return findings


def protect_or_raise(capture: Capture, why: Start = Start.GO_ON) -> None:
    """Look at a connector that runs; stop it and say why if rows are in danger.

    Raises:
        CaptureUnsafeError: the guard refuses; the connector is stopped.
    """
    refused = must_stop(capture.look(why))
    if refused:
        capture.client.stop_and_wait(capture.name, within_s=STOP_WITHIN_S)
    _raise_unsafe(capture.name, refused)


def heal(capture: Capture, patience: Patience = _PATIENT) -> Healed:
    """Restart what failed until it runs, looking through the guard before each restart.

    Raises:
        ConnectError: Connect is away or says no.
    """
    client, name = capture.client, capture.name
    restarts = 0
    for attempt in range(patience.attempts_max):
        status = client.status(name)
        if status.all_running:
            return Healed(Health.RUNNING, restarts, status)
        if status.stopped:
            return Healed(Health.LEFT_ALONE, restarts, status)
        findings = _look_if_reachable(capture)
        refused = must_stop(findings or [])
        if refused:
            stopped = client.stop_and_wait(name, within_s=STOP_WITHIN_S)
            return Healed(Health.REFUSED, restarts, stopped, tuple(refused))
        if findings is not None and status.failed:
            client.restart_failed(name)
            restarts += 1
        if _settled(capture, patience):
            return Healed(Health.RUNNING, restarts, client.status(name))
        bound_s = min(patience.longest_pause_s, patience.first_pause_s * 2.0**attempt)
        client.waiting.sleep(bound_s * (0.5 + 0.5 * client.waiting.random()))
    return Healed(Health.FAILED, restarts, client.status(name))


def _refuse_unsafe(capture: Capture) -> None:
    problems = [
        *lint(capture.config, capture.scope),
        *lint_plugins(capture.client.plugins()),
    ]
    if problems:
        raise ConfigRefusedError(capture.name, [str(problem) for problem in problems])


def _raise_unsafe(name: str, refused: list[GuardFinding]) -> None:
    if refused:
        raise CaptureUnsafeError(name, [str(finding) for finding in refused])


def _look_when_released(capture: Capture, why: Start) -> list[GuardFinding]:
    """Refusals, after giving the database time to notice that the old reader has gone."""
    last: list[GuardFinding] = []

    def look() -> bool | None:
        last[:] = must_stop(capture.look(why))
        only_taken = bool(last) and all(finding.rule == "slot-taken" for finding in last)
        return None if only_taken else True

    capture.client.waiting.until(look, RELEASE_WITHIN_S)
    return last


def _look_if_reachable(capture: Capture) -> list[GuardFinding] | None:
    """Findings, or None while the database is away: then a restart would only fail again."""
    try:
        return capture.look(Start.GO_ON)
    except SourceUnavailableError:
        return None


def _settled(capture: Capture, patience: Patience) -> bool:
    """Whether it runs and goes on running; waits until that is known or the time is over."""
    try:
        status = capture.client.await_state(
            capture.name,
            lambda status: status.all_running or status.failed,
            what="settled",
            within_s=patience.settle_s,
        )
    except StateNotReachedError:
        return False
    return status.all_running and not _fails_again(capture, patience)


def _fails_again(capture: Capture, patience: Patience) -> bool:
    def look() -> bool | None:
        return None if capture.client.status(capture.name).all_running else True

    return capture.client.waiting.until(look, patience.steady_s) is True
