"""How brokers are spoken to: every client is told, and no password stands in a file."""

import ast
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streams.adapters.kafka import producer_config
from streams.engine import kafka_config
from streams.kafka_access import client_security, connect_security
from streams.settings import SettingsError, load
from streams.worker import engine_settings

ROOT = Path(__file__).parents[2]
SECURED = load(
    {
        "TAILRACE_KAFKA_BOOTSTRAP": "broker:9093",
        "TAILRACE_DATA_DIR": "/var/lib/worker",
        "TAILRACE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "TAILRACE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "TAILRACE_KAFKA_SASL_USERNAME": 'tail"race',
        "TAILRACE_KAFKA_SASL_PASSWORD": "hush",
        "TAILRACE_KAFKA_CA_FILE": "/etc/ca.pem",
        "TAILRACE_KAFKA_CERTIFICATE_FILE": "/etc/own.pem",
        "TAILRACE_KAFKA_KEY_FILE": "/etc/own.pem",
        "TAILRACE_KAFKA_KEY_PASSWORD": "hush-key",
    }
)
OPTIONS = {
    "security.protocol": "SASL_SSL",
    "ssl.endpoint.identification.algorithm": "https",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.username": 'tail"race',
    "sasl.password": "hush",
    "ssl.ca.location": "/etc/ca.pem",
    "ssl.certificate.location": "/etc/own.pem",
    "ssl.key.location": "/etc/own.pem",
    "ssl.key.password": "hush-key",
}


def test_every_setting_has_its_option() -> None:
    assert client_security(SECURED) == OPTIONS


def test_without_settings_brokers_are_spoken_to_in_the_clear() -> None:
    assert client_security(load({})) == {
        "security.protocol": "PLAINTEXT",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert Producer(producer_config("broker:9092", 5, client_security(load({}))))


@pytest.mark.parametrize(
    "config",
    [
        kafka_config.admin_config,
        kafka_config.group_consumer_config,
        kafka_config.reader_config,
        kafka_config.packed_producer_config,
    ],
)
def test_every_client_of_the_engine_is_told(config: object) -> None:
    made = config(engine_settings(SECURED, "name"))  # type: ignore[operator]  # each takes settings
    assert made.items() >= OPTIONS.items()


def test_the_producer_of_outputs_is_told() -> None:
    assert producer_config("b:1", 5, client_security(SECURED)).items() >= OPTIONS.items()


def test_connect_is_told_for_each_of_its_clients_and_holds_no_password() -> None:
    lines = connect_security(SECURED)
    for client in ("", "producer.", "consumer.", "admin."):
        assert lines[f"{client}security.protocol"] == "SASL_SSL"
        assert lines[f"{client}sasl.mechanism"] == "SCRAM-SHA-512"
        assert lines[f"{client}sasl.jaas.config"] == (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="tail\\"race" password="${env:TAILRACE_KAFKA_SASL_PASSWORD}";'
        )
        assert lines[f"{client}ssl.truststore.location"] == "/etc/ca.pem"
        assert lines[f"{client}ssl.keystore.location"] == "/etc/own.pem"
    assert "hush" not in repr(lines)


def test_java_reads_certificate_and_key_from_one_file() -> None:
    two = load(
        {
            "TAILRACE_KAFKA_SECURITY_PROTOCOL": "SSL",
            "TAILRACE_KAFKA_CERTIFICATE_FILE": "/etc/own.pem",
            "TAILRACE_KAFKA_KEY_FILE": "/etc/key.pem",
        }
    )
    with pytest.raises(SettingsError, match="from one PEM file"):
        connect_security(two)


def test_no_client_is_made_without_being_told() -> None:
    """Every place in the service that makes a client says how brokers are spoken to."""
    makers = {"AdminClient", "Producer", "Consumer"}
    telling = {"security", "config", "_config", "kafka_config", "producer_config"}
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "streams").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in makers
        and not any(
            (isinstance(part, ast.Name) and part.id in telling)
            or (isinstance(part, ast.Call) and getattr(part.func, "id", "").endswith("_config"))
            for argument in node.args
            for part in ast.walk(argument)
        )
    ]
    assert not silent, f"pass `client_security(settings)`: {silent}"
