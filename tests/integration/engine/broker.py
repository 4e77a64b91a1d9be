"""A broker of the engine's own tests: one KRaft node that the tests may kill and start again."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.jars import Jars, ensure, maven
from sandbox.java import find_java
from sandbox.kafka import Kafka
from sandbox.ports import free_ports
from tests.support.waiting import until

LOCK = Path(__file__).resolve().parents[3] / "sandbox" / "jars.lock"
START_DEADLINE_S = 60


class MissingPrerequisiteError(AssertionError):
    """The machine lacks what the broker needs; never a reason to skip."""


class Broker:
    """The node, as a process of this test run."""

    def __init__(self, kafka: Kafka, log: Path) -> None:
        self._kafka = kafka
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kafka(self) -> Kafka:
        """What runs."""
        return self._kafka

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    def start(self) -> None:
        command = self._kafka.command()
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                command.argv, env=command.env, cwd=command.cwd, stdout=out, stderr=out
            )
        until("the broker answers", lambda: self._kafka.ready() is not None, START_DEADLINE_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


@contextmanager
def running(directory: Path, make: Callable[..., Kafka] = Kafka) -> Iterator[Broker]:
    """A broker that is stopped and forgotten at the end.

    Args:
        directory: for its data and its log.
        make: of what is common to all brokers, where one is to be another.
    """
    java, too_old = find_java(os.environ)
    if java is None:
        raise MissingPrerequisiteError(f"Java 17 or newer is needed, found {too_old or 'none'}")
    etc = directory / "etc"
    etc.mkdir()
    port, controller = free_ports(2)
    kafka = make(
        java.program, _jars().kafka, directory / "data", etc, port, controller, dict(os.environ)
    )
    kafka.prepare()
    broker = Broker(kafka, directory / "broker.log")
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def _jars() -> Jars:
    program = shutil.which("mvn") or "mvn"
    return ensure(
        os.environ,
        lock_text=LOCK.read_text(encoding="ascii"),
        resolve=maven(program, os.environ),
        say=print,
    )
