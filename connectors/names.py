"""Durable names of capture: they live in databases, in stored offsets and in dashboards.

A changed name is a new slot, a new offset or a new topic to the outside world, so none is ever
edited; a new one is added beside it.
"""

import re

from connectors.errors import SettingsRefusedError

SLOT = "metering_outbox"
"""Replication slot: made by the outbox installation and by the repair run, never by Debezium."""

PUBLICATION = "metering_outbox"
"""Insert-only publication of the outbox root table."""

OUTBOX_SCHEMA = "metering"
OUTBOX_TABLE = "usage_outbox"

USAGE_TOPIC = "usage.events"
"""Where every outbox row goes; a constant, so that no row's content can invent a topic."""

CONNECTOR_PREFIX = "outbox-"
"""How the name of every source's connector begins."""

CDC_ROLE = "metering_cdc"
PASSWORD_VARIABLE = "METERING_CDC_PASSWORD"  # noqa: S105  the name of a variable, not its value
"""Environment variable of the Connect worker that holds the CDC role's password."""

CONNECTOR_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
ROUTER_CLASS = "io.debezium.transforms.outbox.EventRouter"
PREDICATE_CLASS = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"

SOURCE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
"""The rule that the outbox has for its own name."""


def source_problem(source: str) -> str | None:
    """Say what is wrong with a source's name, or None; it goes into topic names and offset keys."""
    if SOURCE_NAME.fullmatch(source):
        return None
    return (
        f"source: {source!r} is not 1 to 63 of a-z, 0-9, '_' and '-', starting with a letter; "
        "use the name fixed in metering.source"
    )


def connector_name(source: str) -> str:
    """Name of the connector of a source.

    Raises:
        SettingsRefusedError: the source's name breaks the naming rule.
    """
    problem = source_problem(source)
    if problem is not None:
        raise SettingsRefusedError([problem])
    return CONNECTOR_PREFIX + source


def topic_prefix(source: str) -> str:
    """Debezium's prefix of a source: the key of its stored position, fixed for ever."""
    return f"src.{source}"


def outbox_record_topic(prefix: str) -> str:
    """Name a row carries inside Debezium, before the router moves it to the usage topic."""
    return f"{prefix}.{OUTBOX_SCHEMA}.{OUTBOX_TABLE}"
