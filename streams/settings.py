"""Settings: environment `TAILRACE_*` over `tailrace.toml`, one frozen value, all problems at once.

In: a mapping of environment variables and the text of a file. Out: `Settings`, or `SettingsError`
with one line a problem. Nothing is read at import.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from streams.setting_values import brokers as _brokers
from streams.setting_values import choice as _choice
from streams.setting_values import crash_point as _crash_point
from streams.setting_values import dsn as _dsn
from streams.setting_values import name as _name
from streams.setting_values import outbox as _outbox
from streams.setting_values import text as _text
from streams.setting_values import url as _url
from streams.setting_values import whole as _whole

PREFIX: Final = "TAILRACE_"
FILE_NAME: Final = "tailrace.toml"


class SettingsError(Exception):
    """Settings are missing or wrong; every problem on a line of its own."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _setting(
    default: Any, parse: Callable[[str], Any], meaning: str, *, secret: bool = False
) -> Any:
    """A field with its parser and the line that `tailrace config show` and the docs print."""
    described = {"parse": parse, "meaning": meaning, "secret": secret}
    # Nobody who prints the whole value prints a secret.
    return field(default=default, repr=not secret, metadata=described)


@dataclass(frozen=True)
class Settings:
    """Everything a worker or a command is told from outside."""

    kafka_bootstrap: str = _setting("", _brokers, "brokers, host:port separated by commas")
    kafka_security_protocol: str = _setting(
        "PLAINTEXT",
        _choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "how brokers are spoken to, in Kafka's own words",
    )
    kafka_sasl_mechanism: str = _setting(
        "",
        _choice("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "how the login is proven to brokers",
    )
    kafka_sasl_username: str = _setting("", _text, "login at the brokers")
    kafka_sasl_password: str = _setting("", _text, "its password", secret=True)
    kafka_ca_file: str = _setting("", _text, "PEM: who may have signed the brokers' certificates")
    kafka_certificate_file: str = _setting("", _text, "PEM: our own certificate, for brokers")
    kafka_key_file: str = _setting("", _text, "PEM: its key; Connect reads both from one file")
    kafka_key_password: str = _setting("", _text, "password of that key", secret=True)
    ledger_dsn: str = _setting("", _dsn, "PostgreSQL of the ledger", secret=True)
    source_dsn: str = _setting(
        "", _dsn, "PostgreSQL of the service, role metering_ops: audit and canaries", secret=True
    )
    source: str = _setting("sandbox", _outbox, "name of the outbox, fixed at its installation")
    connect_url: str = _setting("", _url, "Kafka Connect's REST address")
    partitions: int = _setting(12, _whole(1, 4096), "partition count the topics were created with")
    replication: int = _setting(3, _whole(1, 9), "replication factor for new topics")
    data_dir: str = _setting("", _text, "folder of one worker's state; never shared")
    group: str = _setting("tailrace-admit", _text, "consumer group of the workers")
    group_protocol: str = _setting("classic", _choice("classic", "consumer"), "membership protocol")
    group_instance_id: str = _setting(
        "", _text, "static membership: only where a supervisor restarts the same name"
    )
    session_timeout_ms: int = _setting(10_000, _whole(1_000, 300_000), "a silent worker is gone")
    heartbeat_ms: int = _setting(1_000, _whole(100, 10_000), "pause of a moved partition, about")
    chunk_records: int = _setting(5_000, _whole(1, 100_000), "records fetched at a time, at most")
    chunk_wait_ms: int = _setting(
        # What was committed together comes within it. What comes later is in the next chunk.
        10,
        _whole(1, 5_000),
        "how long a fetch waits for more once it has a record",
    )
    settle_deadline_s: int = _setting(
        # Above the deadline of a delivery, below the group's patience with a silent member.
        60,
        _whole(46, 299),
        "a chunk not settled by then ends the worker",
    )
    horizon_h: int = _setting(
        168, _whole(48, 24 * 366), "hours for which identities are remembered"
    )
    facts_interval_ms: int = _setting(
        1_000, _whole(50, 60_000), "pause between facts to the ledger"
    )
    catalogue_refresh_s: int = _setting(
        60, _whole(1, 600), "pause between readings of the catalogue"
    )
    stripe_api_base: str = _setting("https://api.stripe.com", _url, "Stripe's API, or a stand-in")
    stripe_api_key: str = _setting(
        "", _text, "a restricted key; live keys need live = 1", secret=True
    )
    stripe_account: str = _setting("default", _name, "name of the Stripe account, in identifiers")
    live: int = _setting(0, _whole(0, 1), "1 to allow a live Stripe key")
    publish_rate_per_s: int = _setting(
        20, _whole(1, 10_000), "requests a second to Stripe, at most"
    )
    publish_lanes: int = _setting(16, _whole(1, 512), "requests in flight, at most one a lane")
    publish_interval_ms: int = _setting(500, _whole(20, 60_000), "pause between looks for due work")
    publish_lease_s: int = _setting(60, _whole(15, 600), "a claimed lane returns after that")
    stripe_connect_timeout_ms: int = _setting(3_000, _whole(100, 60_000), "to reach Stripe")
    stripe_read_timeout_ms: int = _setting(10_000, _whole(100, 120_000), "to hear its answer")
    stripe_webhook_secret: str = _setting(
        "", _text, "signing secret of the webhook endpoint, whsec_...", secret=True
    )
    webhook_host: str = _setting("127.0.0.1", _text, "address on which `tailrace webhook` listens")
    webhook_port: int = _setting(8478, _whole(0, 65_535), "its port; 0 lets the system choose")
    webhook_tolerance_s: int = _setting(
        300, _whole(1, 3_600), "how far a webhook's signature may be from now"
    )
    report_sweep_s: int = _setting(
        900, _whole(1, 86_400), "pause between readings of Stripe's error reports, of all workers"
    )
    reconcile_reads_per_s: int = _setting(
        5, _whole(1, 25), "reads of Stripe's sums a second, at most"
    )
    reconcile_reads: int = _setting(
        # Stripe allows at least 10,000 reads in 30 days, whoever makes them.
        8_000,
        _whole(1, 1_000_000),
        "reads of Stripe's sums in 30 days, at most",
    )
    ingest_dsn: str = _setting(
        "", _dsn, "PostgreSQL of the outbox, role metering_writer: `tailrace ingest`", secret=True
    )
    ingest_keys_file: str = _setting("", _text, "TOML: hashes of API keys and their tenants")
    ingest_host: str = _setting("127.0.0.1", _text, "address on which `tailrace ingest` listens")
    ingest_port: int = _setting(8479, _whole(0, 65_535), "its port; 0 lets the system choose")
    ingest_body_kib: int = _setting(4_096, _whole(1, 65_536), "KiB of a call's body, at most")
    ingest_events_per_s: int = _setting(
        5_000, _whole(1, 1_000_000), "events a second of one API key, at most, by each process"
    )
    ingest_connections: int = _setting(8, _whole(1, 200), "calls recorded at a time, at most")
    ingest_timeout_s: int = _setting(
        # Above the outbox's own wait for a key, else nobody hears that it was one.
        15,
        _whole(6, 300),
        "a call that takes longer is answered with 503",
    )
    metrics_host: str = _setting("127.0.0.1", _text, "address of /metrics, /ready and /health")
    metrics_port: int = _setting(0, _whole(0, 65_535), "its port; 0 lets the system choose")
    exporter_host: str = _setting("127.0.0.1", _text, "address of `tailrace exporter`")
    exporter_port: int = _setting(9478, _whole(0, 65_535), "its port; 0 lets the system choose")
    log_level: str = _setting("info", _choice("debug", "info", "warning", "error"), "least level")
    crash_at: str = _setting(
        "", _crash_point, "for drills: STEP[:n[:SIGNAL]], strikes this worker at its nth passing"
    )

    @property
    def livemode(self) -> bool:
        """Whether the key sends real usage; a part of every identifier."""
        return self.stripe_api_key.startswith(("sk_live", "rk_live"))


REQUIRED_BY_WORKER: Final = ("kafka_bootstrap", "ledger_dsn", "data_dir", "stripe_api_key")


def load(
    environment: Mapping[str, str], file_text: str | None = None, *, required: tuple[str, ...] = ()
) -> Settings:
    """The settings in force.

    Args:
        environment: usually `os.environ`; `TAILRACE_X` sets `x` and wins over the file.
        file_text: content of `tailrace.toml`, None where there is none.
        required: names that this command cannot do without.

    Raises:
        SettingsError: with every problem, each naming the setting, the rule and the way out.
    """
    problems: list[str] = []
    given = _from_file(file_text, problems)
    for name, value in environment.items():
        if name.startswith(PREFIX):
            given[name.removeprefix(PREFIX).lower()] = (name, value)
    known = {f.name: f for f in fields(Settings)}
    values: dict[str, Any] = {}
    for name, (origin, value) in given.items():
        if name in known:
            try:
                values[name] = known[name].metadata["parse"](value)
            except ValueError as error:
                shown = "***" if known[name].metadata["secret"] else repr(value)
                problems.append(f"{origin}: {error}, got {shown}")
        elif origin not in _OTHER_VARIABLES:
            problems.append(f"{origin}: unknown setting; `tailrace config show` lists them all")
    settings = Settings(**values)
    problems += [
        f"{PREFIX}{name.upper()}: is not set; {known[name].metadata['meaning']}"
        for name in required
        if not getattr(settings, name)
    ]
    problems += _contradictions(settings)
    if problems:
        raise SettingsError(problems)
    return settings


_OTHER_VARIABLES: Final = frozenset({"TAILRACE_DIR", "TAILRACE_STACK"})


def _from_file(text: str | None, problems: list[str]) -> dict[str, tuple[str, str]]:
    if text is None:
        return {}
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{FILE_NAME}: is not TOML: {error}")
        return {}
    given = {}
    for name, value in document.items():
        if isinstance(value, str | int):
            given[name] = (f"{FILE_NAME} {name}", _plain(value))
        else:
            problems.append(f"{FILE_NAME} {name}: must be a text or a whole number")
    return given


def _plain(value: str | int) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _contradictions(settings: Settings) -> list[str]:
    problems = []
    if settings.heartbeat_ms * 3 > settings.session_timeout_ms:
        problems.append("TAILRACE_HEARTBEAT_MS: must be at most a third of the session timeout")
    if settings.group_protocol == "consumer" and settings.group_instance_id:
        problems.append(
            "TAILRACE_GROUP_INSTANCE_ID: a crashed static member cannot come back under the "
            "consumer protocol; leave one of the two"
        )
    waits_ms = settings.stripe_connect_timeout_ms + settings.stripe_read_timeout_ms
    if settings.publish_lease_s * 1000 < 2 * waits_ms:
        problems.append("TAILRACE_PUBLISH_LEASE_S: must be twice the connect and read timeouts")
    problems += _kafka_contradictions(settings)
    if settings.livemode and not settings.live:
        problems.append(
            "TAILRACE_STRIPE_API_KEY: is a live key; say --live, or TAILRACE_LIVE=1, to mean it"
        )
    return problems


def _kafka_contradictions(settings: Settings) -> list[str]:
    protocol = settings.kafka_security_protocol
    login = {
        "KAFKA_SASL_MECHANISM": settings.kafka_sasl_mechanism,
        "KAFKA_SASL_USERNAME": settings.kafka_sasl_username,
        "KAFKA_SASL_PASSWORD": settings.kafka_sasl_password,
    }
    files = {
        "KAFKA_CA_FILE": settings.kafka_ca_file,
        "KAFKA_CERTIFICATE_FILE": settings.kafka_certificate_file,
        "KAFKA_KEY_FILE": settings.kafka_key_file,
    }
    asked = f"{PREFIX}KAFKA_SECURITY_PROTOCOL is {protocol}"
    problems = [
        f"{PREFIX}{name}: is {'not set' if not value else 'set'}, and {asked}"
        for name, value in login.items()
        if bool(value) != protocol.startswith("SASL_")
    ]
    problems += [
        f"{PREFIX}{name}: is set, and {asked}, which encrypts nothing"
        for name, value in files.items()
        if value and not protocol.endswith("SSL")
    ]
    if bool(settings.kafka_certificate_file) != bool(settings.kafka_key_file):
        problems.append(f"{PREFIX}KAFKA_KEY_FILE: certificate and key are given together")
    return problems


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """Every setting with its value and meaning; secrets masked."""
    rows = []
    for f in fields(Settings):
        value = str(getattr(settings, f.name))
        shown = "***" if f.metadata["secret"] and value else value
        rows.append((f"{PREFIX}{f.name.upper()}", shown, f.metadata["meaning"]))
    return rows


def read_file(directory: Path) -> str | None:
    """The text of `tailrace.toml` there, None where there is none."""
    path = directory / FILE_NAME
    return path.read_text(encoding="utf-8") if path.is_file() else None
