"""A broker that speaks TLS and wants a login: every client gets in, and nobody without either."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sandbox.connect import Connect
from sandbox.kafka import Kafka
from sandbox.ports import free_ports
from streams import topics
from streams.adapters.kafka import producer_config
from streams.cli.exporter import parts_of
from streams.cli.stack import Stack
from streams.engine import clients, kafka_config
from streams.kafka_access import client_security
from streams.settings import Settings, load
from streams.topics import TopicsError
from streams.worker import engine_settings
from tests.integration.engine.broker import running
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[3]
PASSWORD = "a pass, word"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class SecuredKafka(Kafka):
    """The sandbox's broker with one listener more, for clients from outside."""

    secured_port: int
    certificate: Path

    def settings(self) -> dict[str, str]:
        """What it has, and the listener."""
        plain = Kafka.settings(self)
        secured = f"SASL_SSL://localhost:{self.secured_port}"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{secured}",
            "advertised.listeners": f"{plain['advertised.listeners']},{secured}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{LOGIN} user_tailrace="{PASSWORD}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
        }


@dataclass(frozen=True, slots=True)
class SecuredConnect(Connect):
    """The sandbox's Connect worker, told by the lines that a command prints."""

    lines: dict[str, str]

    def settings(self) -> dict[str, str]:
        """What it has, and the lines."""
        return {**Connect.settings(self), **self.lines}


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker that runs, and how it is reached."""

    kafka: Kafka
    environment: dict[str, str]

    @property
    def settings(self) -> Settings:
        return load(self.environment)


def certificate(directory: Path, name: str) -> Path:
    """A certificate for `localhost` that signs itself, in one file with its key."""
    file = directory / f"{name}.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", str(directory / f"{name}.key"), "-out", str(directory / f"{name}.crt"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    parts = [(directory / f"{name}.{kind}").read_text(encoding="ascii") for kind in ("key", "crt")]
    file.write_text("".join(parts), encoding="ascii")
    return file


@pytest.fixture(scope="module")
def broker_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    (port,) = free_ports(1)
    make = partial(SecuredKafka, secured_port=port, certificate=certificate(directory, "broker"))
    with running(directory, make) as broker:
        yield Secured(
            broker.kafka,
            {
                "TAILRACE_KAFKA_BOOTSTRAP": f"localhost:{port}",
                "TAILRACE_DATA_DIR": str(directory / "worker"),
                "TAILRACE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
                "TAILRACE_KAFKA_SASL_MECHANISM": "PLAIN",
                "TAILRACE_KAFKA_SASL_USERNAME": "tailrace",
                "TAILRACE_KAFKA_SASL_PASSWORD": PASSWORD,
                "TAILRACE_KAFKA_CA_FILE": str(directory / "broker.crt"),
            },
        )


@pytest.fixture
def secured(broker_of_its_own: Secured) -> Settings:
    """The settings by which it is reached."""
    return broker_of_its_own.settings


def apply(settings: Settings) -> list[str]:
    return topics.apply(
        settings.kafka_bootstrap, partitions=2, replication=1, security=client_security(settings)
    )


def test_topics_are_applied_and_checked(secured: Settings) -> None:
    assert len(apply(secured)) == len(topics.TOPICS)
    security = client_security(secured)
    assert not topics.check(secured.kafka_bootstrap, partitions=2, replication=1, security=security)
    assert topics.id_of(secured.kafka_bootstrap, topics.EVENTS, security)


def admin(settings: Settings) -> AdminClient:
    return clients.admin(engine_settings(settings, "test"))


def member(settings: Settings) -> Consumer:
    return clients.group_consumer(engine_settings(settings, "test"), lambda _error: None)


def reader(settings: Settings) -> Consumer:
    return clients.reader(engine_settings(settings, "test"))


def packed(settings: Settings) -> Producer:
    return Producer({**kafka_config.packed_producer_config(engine_settings(settings, "test"))})


def outputs(settings: Settings) -> Producer:
    return Producer(producer_config(settings.kafka_bootstrap, 5, client_security(settings)))


@pytest.mark.parametrize("make", [admin, member, reader, packed, outputs])
def test_every_client_of_a_worker_gets_in(
    secured: Settings, make: Callable[[Settings], Any]
) -> None:
    assert make(secured).list_topics(timeout=15).brokers


def test_the_exporter_reads_the_lag(secured: Settings) -> None:
    apply(secured)
    read = parts_of(Stack(secured, None, {}, ()))["kafka"]
    assert ("usage_partition_lag_records", "1", 0) in list(read())


def test_commands_get_in(broker_of_its_own: Secured, tmp_path: Path) -> None:
    environment = {**broker_of_its_own.environment, "TAILRACE_PARTITIONS": "2"}
    environment["TAILRACE_REPLICATION"] = "1"
    for command in ("apply", "check"):
        done = typed(environment, tmp_path, "topics", command)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"kafka_sasl_password": "another"},
        {"kafka_security_protocol": "PLAINTEXT"},
        {"kafka_ca_file": "other.crt"},
    ],
    ids=["wrong password", "no TLS", "unknown signer"],
)
def test_nobody_else_does(
    secured: Settings, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "kafka_ca_file" in changes:
        certificate(tmp_path, "other")
        changes = {"kafka_ca_file": str(tmp_path / "other.crt")}
    monkeypatch.setattr(topics, "TIMEOUT_S", 3.0)
    with pytest.raises(TopicsError, match="does not answer"):
        apply(replace(secured, **changes))
    with pytest.raises(KafkaException):
        outputs(replace(secured, **changes)).list_topics(timeout=3)


def typed(
    environment: dict[str, str], directory: Path, *command: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streams.cli.main", *command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def printed(environment: dict[str, str], directory: Path) -> dict[str, str]:
    """What `connector worker-config` tells to write."""
    done = typed(environment, directory, "connector", "worker-config")
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_connect_gets_in_by_the_lines_that_are_printed_for_it(
    broker_of_its_own: Secured, tmp_path: Path
) -> None:
    kafka, environment = broker_of_its_own.kafka, broker_of_its_own.environment
    lines = printed(environment, tmp_path)
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (port,) = free_ports(1)
    variables = {**os.environ, **environment}
    bootstrap = environment["TAILRACE_KAFKA_BOOTSTRAP"]
    connect = SecuredConnect(
        kafka.java, kafka.jars, plugins, tmp_path, port, bootstrap, variables, lines
    )
    connect.prepare()
    command = connect.command()
    log = tmp_path / "connect.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command.argv, env=command.env, cwd=command.cwd, stdout=out, stderr=out
        )
    try:
        # It answers once it has made its topics, written to them and read them back.
        until(lambda: f"Connect: {log.read_text()[-2000:]}", lambda: bool(connect.ready()), 90)
    finally:
        process.kill()
        process.wait(10)
    assert PASSWORD not in log.read_text(encoding="utf-8")
