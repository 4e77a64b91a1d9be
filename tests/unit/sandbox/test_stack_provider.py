import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.stack import (
    NativeStack,
    StackError,
    docker_engine,
    open_stack,
    provider_of,
)


def test_the_native_stack_is_the_default() -> None:
    assert provider_of({}) == "native"
    assert provider_of({"TAILRACE_STACK": "docker"}) == "docker"


def test_another_choice_is_an_error_that_names_both() -> None:
    with pytest.raises(StackError, match="TAILRACE_STACK=podman: must be one of native, docker"):
        provider_of({"TAILRACE_STACK": "podman"})


def program(folder: Path, script: str) -> None:
    file = folder / "docker"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "there is no `docker` command"),
        ("echo 'Cannot connect to the daemon' >&2; exit 1", "no Docker engine answers"),
        ('[ "$1" = version ] || { echo unknown >&2; exit 1; }', "it has no compose"),
    ],
)
def test_docker_without_an_engine_is_an_error_and_never_a_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, words: str
) -> None:
    if script is not None:
        program(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match=words) as refused:
        docker_engine()
    assert "unset TAILRACE_STACK" in str(refused.value)
    with pytest.raises(StackError), open_stack(tmp_path / "box", {"TAILRACE_STACK": "docker"}):
        pass


def test_a_shifted_clock_is_refused_for_containers(tmp_path: Path) -> None:
    choice = {"TAILRACE_STACK": "docker"}
    with (
        pytest.raises(StackError, match="shifted clock"),
        open_stack(tmp_path, choice, shift_clock=True),
    ):
        pass


@pytest.mark.parametrize("pid", [None, 0])
def test_a_part_that_is_between_two_lives_is_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int | None
) -> None:
    """Of process 0 the signal would end the run of all drills itself, without a word."""
    facts = {"pids": {"kafka": pid, "workers": [{"pid": pid}]}}
    (tmp_path / "sandbox.json").write_text(json.dumps(facts))
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *one: sent.append(one))
    for part in ("kafka", "worker-0"):
        with pytest.raises(StackError, match=f"{part} has no process now that could be sent SIGK"):
            NativeStack(tmp_path).kill(part, signal.SIGKILL)
    assert sent == []
