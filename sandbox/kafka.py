"""Kafka as a native process: one KRaft node, broker and controller → an address."""

from __future__ import annotations

import base64
import signal
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sandbox import java
from sandbox.class_archive import ClassArchive
from sandbox.ports import LOOPBACK, listening
from sandbox.process import Command, StopStep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class JvmPart(Protocol):
        """What a part needs to have to be started on Kafka's class path."""

        @property
        def java(self) -> Path:
            """The program."""

        @property
        def jars(self) -> Path:
            """Folder of the class path."""

        @property
        def etc(self) -> Path:
            """Folder of the configuration."""

        @property
        def env(self) -> Mapping[str, str]:
            """Environment."""


VERSION = "4.3.1"
HEAP_MAX_MB = 512
MAIN = "kafka.Kafka"

STOP = (StopStep(signal.SIGTERM, 20.0), StopStep(signal.SIGKILL, 5.0))

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    # A topic that nobody declared has the wrong partition count: better no topic.
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # One node asks only itself.
    "controller.quorum.election.timeout.ms": "1000",
    # A broker that was killed is fenced until its old session has expired: 2 s instead of 9 s.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}

LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1.} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.kafka.name = kafka
logger.kafka.level = info
logger.debezium.name = io.debezium
logger.debezium.level = info
logger.connect.name = org.apache.kafka.connect
logger.connect.level = info
logger.configs.name = org.apache.kafka.connect.runtime.WorkerInfo
logger.configs.level = warn
"""


class KafkaError(Exception):
    """The storage could not be formatted. The message holds what the tool said."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """The broker of the sandbox."""

    java: Path
    jars: Path
    """Folder of the class path."""
    data: Path
    etc: Path
    port: int
    controller_port: int
    env: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        """The address clients start from."""
        return f"{LOOPBACK}:{self.port}"

    def settings(self) -> dict[str, str]:
        """The whole server.properties."""
        return {
            **SETTINGS,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{LOOPBACK}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.controller_port}",
            "log.dirs": str(self.data),
        }

    def prepare(self) -> None:
        """Writes the configuration and formats the storage the first time.

        Raises:
            KafkaError: The tool refused, usually because the folder holds another cluster's data.
        """
        write_properties(self._properties, self.settings())
        write_logging(self.etc)
        if (self.data / "meta.properties").exists():
            return
        self.data.mkdir(parents=True, exist_ok=True)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # The tool reads a leading dash as an option.
        cluster = cluster.replace("-", "A")
        arguments = ("format", "-t", cluster, "-c", str(self._properties))
        tool = "kafka.tools.StorageTool"
        command = jvm(self, tool, arguments, heap_mb=128, archive=self.archive)
        done = subprocess.run(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            message = f"formatting {self.data} ended with {done.returncode}: {done.stderr[-1500:]}"
            raise KafkaError(message)

    def command(self) -> Command:
        """The broker in the foreground."""
        arguments = (str(self._properties),)
        return jvm(self, MAIN, arguments, heap_mb=HEAP_MAX_MB, archive=self.archive)

    @property
    def archive(self) -> ClassArchive:
        """The classes it loads."""
        return ClassArchive(self.java, self.jars, java.FLAGS, MAIN)

    def ready(self) -> str | None:
        """The address once the broker answers a metadata question, or None."""
        if not listening(self.port):
            return None
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "log_level": 0,
        }
        try:
            metadata = AdminClient(settings).list_topics(timeout=2)
        except KafkaException:
            return None
        return f"KRaft, {self.bootstrap}" if metadata.brokers else None

    @property
    def _properties(self) -> Path:
        return self.etc / "server.properties"


def jvm(
    part: JvmPart,
    main: str,
    arguments: tuple[str, ...],
    *,
    heap_mb: int,
    archive: ClassArchive | None = None,
) -> Command:
    """A Java program on Kafka's class path, logging to its standard output."""
    argv = (
        str(part.java),
        f"-Xmx{heap_mb}m",
        *java.FLAGS,
        *(archive.options if archive else ()),
        f"-Dlog4j2.configurationFile={part.etc / 'log4j2.properties'}",
        "-cp",
        f"{part.jars}/*",
        main,
        *arguments,
    )
    return Command(argv, part.env, part.etc)


def write_properties(file: Path, settings: Mapping[str, str]) -> None:
    """Writes Java properties; of what needs escaping, the values hold a backslash at most."""
    lines = [f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()]
    file.write_text("".join(lines), encoding="latin-1")


def write_logging(etc: Path) -> None:
    """Writes the logging configuration that both Java programs share."""
    (etc / "log4j2.properties").write_text(LOGGING, encoding="ascii")
