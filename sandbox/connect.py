"""Kafka Connect with Debezium as a native process: jars → a worker that answers on loopback."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from sandbox import java
from sandbox.class_archive import ClassArchive
from sandbox.kafka import VERSION as KAFKA_VERSION
from sandbox.kafka import jvm, write_logging, write_properties
from sandbox.ports import LOOPBACK
from sandbox.process import Command, StopStep

if TYPE_CHECKING:
    from collections.abc import Mapping


VERSION = KAFKA_VERSION
DEBEZIUM_VERSION = "3.7.0.Final"
HEAP_MAX_MB = 512
MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
PLUGIN = "debezium-connector-postgres"
PASSWORD_VARIABLE = "METERING_CDC_PASSWORD"  # noqa: S105 - the name of the variable, not its value

STOP = (StopStep(signal.SIGTERM, 15.0), StopStep(signal.SIGKILL, 5.0))
"""About one stop in ninety hangs in the web server's shutdown: the wait is bounded."""

CONVERTER = "org.apache.kafka.connect.storage.StringConverter"

SETTINGS: Mapping[str, str] = {
    "group.id": "tailrace-connect",
    "key.converter": CONVERTER,
    "value.converter": CONVERTER,
    "offset.storage.topic": "connect-offsets",
    "config.storage.topic": "connect-configs",
    "status.storage.topic": "connect-status",
    "offset.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    # With the default of a minute a kill repeats a minute of rows.
    "offset.flush.interval.ms": "1000",
    # The connector sets its producer's safety options itself.
    "connector.client.config.override.policy": "All",
    "plugin.discovery": "service_load",
    "topic.creation.enable": "false",
    "scheduled.rebalance.max.delay.ms": "10000",
    # The database password travels as a placeholder; REST would show it in clear text otherwise.
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": PASSWORD_VARIABLE,
}


@dataclass(frozen=True, slots=True)
class Connect:
    """The Connect worker of the sandbox."""

    java: Path
    jars: Path
    """Folder of the class path."""
    plugins: Path
    """Folder that holds one folder per plugin."""
    etc: Path
    port: int
    bootstrap: str
    env: Mapping[str, str]

    @property
    def url(self) -> str:
        """The base address of the REST interface."""
        return f"http://{LOOPBACK}:{self.port}"

    def settings(self) -> dict[str, str]:
        """The whole connect.properties."""
        return {
            **SETTINGS,
            "bootstrap.servers": self.bootstrap,
            "listeners": self.url,
            "rest.advertised.host.name": LOOPBACK,
            "plugin.path": str(self.plugins),
        }

    def prepare(self) -> None:
        """Writes the configuration."""
        write_properties(self._properties, self.settings())
        write_logging(self.etc)

    def command(self) -> Command:
        """The worker in the foreground."""
        arguments = (str(self._properties),)
        return jvm(self, MAIN, arguments, heap_mb=HEAP_MAX_MB, archive=self.archive)

    @property
    def archive(self) -> ClassArchive:
        """The classes it loads."""
        return ClassArchive(self.java, self.jars, java.FLAGS, MAIN)

    def ready(self) -> str | None:
        """The address once the herder answers, or None."""
        try:
            answer = requests.get(f"{self.url}/connectors", timeout=(1, 5))
        except requests.RequestException:
            return None
        # `/` answers before the herder is ready, `/connectors` does not.
        return f"Debezium {DEBEZIUM_VERSION}, {self.url}" if answer.ok else None

    @property
    def _properties(self) -> Path:
        return self.etc / "connect.properties"
