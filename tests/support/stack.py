"""One stack, two providers: native processes (default) or containers (`TAILRACE_STACK=docker`).

Both end in a directory with `sandbox.json`, so that everything that reads the addresses from there
runs on either. Choosing containers without an engine is an error, never a skipped test.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import docker  # type: ignore[import-untyped]  # its stubs are a package of their own
import msgspec
from testcontainers.compose import DockerCompose

from sandbox import facts, install, secrets
from sandbox.installation import Address, Installation
from sandbox.paths import Paths, write_json
from sandbox.stripe import API_KEY
from tests.support import witness
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
CHOICE = "TAILRACE_STACK"
PROVIDERS = ("native", "docker")
WAY_OUT = f"Start an engine, or unset {CHOICE}: the native stack needs none."
READY_S = 180.0
COMPOSE_PASSWORD = "sandbox"
COMPOSE_PARTS = ("postgres", "kafka", "connect", "stripe")
COMPOSE_POSTGRES = Address("127.0.0.1", 15432)
COMPOSE_POSTGRES_OF_CONNECT = Address("postgres", 5432)
COMPOSE_BOOTSTRAP = "127.0.0.1:19092"
COMPOSE_CONNECT_URL = "http://127.0.0.1:18083"
COMPOSE_STRIPE_URL = "http://127.0.0.1:12111"


class StackError(Exception):
    """The stack could not be had. A test that needs it fails with this, and says what to do."""


class Stack(Protocol):
    """A running stack. Parts are postgres, kafka, connect, stripe and worker-N."""

    @property
    def directory(self) -> Path:
        """Where sandbox.json is."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The content of sandbox.json as it is now."""

    def kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signals a part; what keeps the stack starts it again."""

    def restart(self, part: str) -> None:
        """Stops a part in order and starts it again; blocks until it is ready."""

    def stop(self, part: str) -> None:
        """An outage: the part stays away until `start`."""

    def start(self, part: str) -> None:
        """Ends an outage; blocks until the part is ready."""

    def scale(self, workers: int) -> None:
        """Runs so many workers; blocks until they are ready."""

    def logs(self, part: str) -> str:
        """Everything a part has said."""


def read_facts(directory: Path) -> Mapping[str, Any]:
    """The content of a directory's sandbox.json."""
    raw = (directory / "sandbox.json").read_bytes()
    value: Mapping[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
    return value


@dataclass(frozen=True, slots=True)
class NativeStack:
    """The sandbox's own processes, through the sandbox's own commands."""

    directory: Path

    @property
    def facts(self) -> Mapping[str, Any]:
        return read_facts(self.directory)

    def kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> None:
        if not self._was_told(part, number, []):
            raise StackError(f"{part} has no process now that could be sent {number.name}")

    def restart(self, part: str) -> None:
        told: list[int] = []
        # One that has ended by itself is started again before long.
        until(f"{part} to run", lambda: self._was_told(part, signal.SIGTERM, told), READY_S)
        (old,) = told
        until(
            lambda: f"{part} is back\n{self.logs(part)[-2000:]}",
            lambda: self._renewed(part, old),
            READY_S,
        )

    def stop(self, part: str) -> None:
        self._command("stop", part)

    def start(self, part: str) -> None:
        self._command("start", part)

    def scale(self, workers: int) -> None:
        self._command("workers", str(workers))

    def logs(self, part: str) -> str:
        return Paths(self.directory).log(part).read_text(encoding="utf-8", errors="replace")

    def shift(self, offset: str) -> None:
        """Sets how far the wall clock of a stack with a shifted clock is ahead, as `+26h`."""
        self._command("clock", offset)

    def up(self, *options: str) -> None:
        self._command("up", *options)

    def down(self) -> None:
        self._command("down")

    def _was_told(self, part: str, number: signal.Signals, told: list[int]) -> bool:
        """Sends it to the part's process, if there is one now, and notes who was told."""
        pid = self._pid(part)
        # Process 0 would be all of our own group.
        if not pid:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        witness.did(f"{number.name} to {part}")
        told.append(pid)
        return True

    def _renewed(self, part: str, old: int) -> bool:
        parts = self.facts["parts"]
        return bool(parts[part]["state"] == "ready" and self._pid(part) != old)

    def _pid(self, part: str) -> int | None:
        pids = self.facts["pids"]
        kind, _, number = part.partition("-")
        pid: int | None = pids["workers"][int(number)]["pid"] if kind == "worker" else pids[part]
        return pid

    def _command(self, *arguments: str) -> None:
        witness.did(f"tailrace sandbox {' '.join(arguments)}")
        done = subprocess.run(
            [sys.executable, "-m", "sandbox", *arguments, "--dir", str(self.directory)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_S + 60,
        )
        if done.returncode != 0:
            raise StackError(f"sandbox {arguments[0]}: exit code {done.returncode}\n{done.stderr}")


@dataclass(frozen=True, slots=True)
class DockerStack:
    """The containers of docker-compose.yml, installed from here through their published ports."""

    directory: Path
    engine: docker.DockerClient
    compose: DockerCompose

    @property
    def facts(self) -> Mapping[str, Any]:
        return read_facts(self.directory)

    def up(self, workers: int) -> None:
        self.compose.start()
        installation = Installation(
            COMPOSE_POSTGRES,
            COMPOSE_POSTGRES_OF_CONNECT,
            secrets.same(COMPOSE_PASSWORD),
            COMPOSE_BOOTSTRAP,
            COMPOSE_CONNECT_URL,
        )
        install.run_all(installation, lambda _: None)
        self._write(installation)
        self.scale(workers)

    def down(self) -> None:
        self.compose.stop(down=True)

    def kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> None:
        self._container(part).kill(number.name)
        self._container(part, running=False).start()

    def restart(self, part: str) -> None:
        self._container(part).restart()
        self._await_healthy(part)

    def stop(self, part: str) -> None:
        self._container(part).stop()

    def start(self, part: str) -> None:
        self._container(part, running=False).start()
        self._await_healthy(part)

    def scale(self, workers: int) -> None:
        options = ("--detach", "--wait", "--no-deps", "--scale", f"worker={workers}", "worker")
        command = [*self.compose.compose_command_property, "up", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"docker compose up worker: {done.stderr}")

    def logs(self, part: str) -> str:
        text: bytes = self._container(part).logs()
        return text.decode("utf-8", "replace")

    def _container(self, part: str, *, running: bool = True) -> Any:
        service, _, number = part.partition("-")
        labels = [
            "com.docker.compose.project=tailrace",
            f"com.docker.compose.service={service}",
            f"com.docker.compose.container-number={int(number or 0) + 1}",
        ]
        found = self.engine.containers.list(all=not running, filters={"label": labels})
        if not found:
            raise StackError(f"{part}: no such container{' runs' if running else ''}")
        return found[0]

    def _await_healthy(self, part: str) -> None:
        until(
            f"{part} is healthy",
            lambda: self._container(part).attrs["State"]["Health"]["Status"] == "healthy",
            READY_S,
        )

    def _write(self, installation: Installation) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        content = {
            "state": "ready",
            **facts.addresses(installation, COMPOSE_STRIPE_URL),
            "settings": facts.settings(installation, COMPOSE_STRIPE_URL, API_KEY),
            "pids": {**dict.fromkeys(COMPOSE_PARTS), "workers": []},
            "parts": {},
        }
        write_json(Paths(self.directory).sandbox_json, content)


def provider_of(environ: Mapping[str, str]) -> str:
    """Which provider is chosen.

    Raises:
        StackError: The choice is none of the two.
    """
    choice = environ.get(CHOICE, "native")
    if choice not in PROVIDERS:
        raise StackError(f"{CHOICE}={choice}: must be one of {', '.join(PROVIDERS)}")
    return choice


def docker_engine() -> docker.DockerClient:
    """A Docker engine that answers.

    Raises:
        StackError: None does, or the client has no `compose`.
    """
    for question in (("version", "--format", "{{.Server.Version}}"), ("compose", "version")):
        try:
            done = subprocess.run(
                ["docker", *question], capture_output=True, text=True, check=False, timeout=30
            )
        except FileNotFoundError:
            raise StackError(
                f"{CHOICE}=docker, but there is no `docker` command. {WAY_OUT}"
            ) from None
        if done.returncode != 0:
            what = "no Docker engine answers" if question[0] == "version" else "it has no compose"
            raise StackError(f"{CHOICE}=docker, but {what} ({done.stderr.strip()}). {WAY_OUT}")
    return docker.from_env()


@contextmanager
def open_stack(
    directory: Path, environ: Mapping[str, str], *, workers: int = 0, shift_clock: bool = False
) -> Iterator[Stack]:
    """A fresh stack of the chosen provider; stopped, and nothing left running, at the end.

    Raises:
        StackError: It cannot be had; the text says why and what to do.
    """
    if provider_of(environ) == "docker":
        if shift_clock:
            raise StackError("a shifted clock needs the native stack: unset TAILRACE_STACK")
        with _containers(directory, workers) as containers:
            yield containers
        return
    native = NativeStack(directory)
    options = ["--workers", str(workers), *(["--shift-clock"] if shift_clock else [])]
    native.up(*options)
    try:
        yield native
    finally:
        native.down()


@contextmanager
def _containers(directory: Path, workers: int) -> Iterator[DockerStack]:
    engine = docker_engine()
    compose = DockerCompose(ROOT, build=True, wait=True, services=list(COMPOSE_PARTS))
    stack = DockerStack(directory, engine, compose)
    try:
        stack.up(workers)
        yield stack
    finally:
        stack.down()
