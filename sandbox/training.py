"""Once per machine: a broker and a Connect worker run for a moment → their class archives.

It happens after the jars were fetched for the first time, and again only for another Java.
"""

from __future__ import annotations

import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sandbox.connect import Connect
from sandbox.jars import locked
from sandbox.kafka import Kafka
from sandbox.ports import free_ports
from sandbox.process import KILL, POLL_S, StopStep, spawn, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.class_archive import ClassArchive
    from sandbox.paths import Paths
    from sandbox.process import Command
    from sandbox.stack import Machine

READY_S = 120.0
WRITE_S = 120.0
"""How long a program may take to end: it writes fifty megabytes then."""


class Trainee(Protocol):
    """A Java part that can be run for its archive."""

    @property
    def archive(self) -> ClassArchive:
        """What is to be made."""

    def prepare(self) -> None:
        """Before the start."""

    def command(self) -> Command:
        """The start."""

    def ready(self) -> str | None:
        """Whether it has loaded what it needs."""


def train(
    paths: Paths, machine: Machine, env: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Makes the archives that are missing; blocks for as long as two Java programs start and end.

    Never fails because of an archive: without one, starts take longer.
    """
    root = machine.jars.root
    with locked(root.parent / f"{root.name}.lock"), tempfile.TemporaryDirectory(dir=root) as name:
        folder = Path(name)
        broker, connect = _parts(machine, folder, env)
        if not (broker.archive.wanted or connect.archive.wanted):
            return
        say("first run: Kafka and Connect run once and remember their classes for faster starts")
        broker.archive.kept.parent.mkdir(exist_ok=True)
        with _Run(paths, "training-kafka", broker, folder) as broker_run:
            if broker_run.reached_ready:
                with _Run(paths, "training-connect", connect, folder):
                    pass


def _parts(machine: Machine, folder: Path, env: Mapping[str, str]) -> tuple[Kafka, Connect]:
    ports = free_ports(3)
    broker = Kafka(
        machine.java, machine.jars.kafka, folder / "kafka", folder, ports[0], ports[1], env
    )
    plugins = machine.jars.plugins
    connect = Connect(
        machine.java, machine.jars.kafka, plugins, folder, ports[2], broker.bootstrap, env
    )
    return broker, connect


class _Run:
    """One program from its start until it has written its archive."""

    def __init__(self, paths: Paths, name: str, part: Trainee, folder: Path) -> None:
        self._fresh = folder / f"{name}.jsa"
        self._archive = part.archive
        part.prepare()
        command = part.command()
        self._writes = part.archive.wanted
        order = (part.archive.writing(self._fresh),) if self._writes else ()
        writing = (command.argv[0], *order, *command.argv[1:])
        self._child, self._ref = spawn(paths, name, replace(command, argv=writing))
        self._paths, self._name = paths, name
        self.reached_ready = self._await(part)

    def _await(self, part: Trainee) -> bool:
        deadline_s = time.monotonic() + READY_S
        while time.monotonic() < deadline_s and self._child.poll() is None:
            if part.ready() is not None:
                return True
            time.sleep(POLL_S)
        return False

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        steps = (StopStep(signal.SIGTERM, WRITE_S), *KILL) if kind is None else KILL
        stop(self._ref, steps)
        self._child.wait()
        self._paths.pid_file(self._name).unlink(missing_ok=True)
        if kind is None and self._writes:
            self._archive.keep(self._fresh)
