"""Hop 1: a source's settings → the Debezium connector config of its outbox.

Pure: `options` lists every option in its order with the reason for its value, `render` gives the
flat map that Connect takes. Each option is chosen here, also where it equals today's default,
so that an upgrade cannot change it silently. Secrets appear only as placeholders that the Connect
worker resolves.
"""

import re
from dataclasses import dataclass

from connectors import names
from connectors.errors import SettingsRefusedError
from connectors.source_settings import SourceSettings, problems

__all__ = ["Option", "SourceSettings", "options", "render"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a connector config and why it has its value."""

    name: str
    value: str
    reason: str


def options(settings: SourceSettings) -> tuple[Option, ...]:
    """Every option of the source's connector, in order, each with its reason.

    Raises:
        SettingsRefusedError: with all broken rules at once.
    """
    found = problems(settings)
    if found:
        raise SettingsRefusedError(found)
    return (
        *_connection(settings),
        *_position(settings),
        *_selection(),
        *_failure(),
        *_speed(),
        *_wire(),
        *_router(settings),
        *_producer(settings),
    )


def render(settings: SourceSettings) -> dict[str, str]:
    """The flat config map for Connect.

    Raises:
        SettingsRefusedError: with all broken rules at once.
    """
    return {option.name: option.value for option in options(settings)}


def _connection(settings: SourceSettings) -> list[Option]:
    chosen = [
        Option("connector.class", names.CONNECTOR_CLASS, "the one connector that reads pgoutput"),
        Option("tasks.max", "1", "a slot has one reader, so only one task can exist"),
        Option("database.hostname", settings.host, "as seen from the Connect worker"),
        Option("database.port", str(settings.port), "never guessed"),
        Option("database.dbname", settings.database, "a slot belongs to one database"),
        Option("database.user", settings.user, "LOGIN REPLICATION and no right on any table"),
        Option(
            "database.password",
            f"${{env:{settings.password_variable}}}",
            "Connect's REST interface shows every value in clear; it shows this placeholder",
        ),
        Option("database.sslmode", settings.ssl_mode, "the default falls back to plain text"),
    ]
    if settings.ssl_root_cert is not None:
        chosen.append(Option("database.sslrootcert", settings.ssl_root_cert, "who to trust"))
    return chosen


def _position(settings: SourceSettings) -> list[Option]:
    return [
        Option(
            "topic.prefix",
            names.topic_prefix(settings.source),
            "key of the stored position: another prefix would start without one",
        ),
        Option("plugin.name", "pgoutput", "the default, decoderbufs, is not part of PostgreSQL"),
        Option("slot.name", settings.slot, "made by the installation, before the first row"),
        Option("slot.drop.on.stop", "false", "dropping the slot at a stop loses what follows"),
        Option("slot.failover", "false", "only acts when Debezium makes the slot; ours exists"),
        Option(
            "slot.max.retries", "60", "after a crash the old session may hold the slot for long"
        ),
        Option("slot.retry.delay.ms", "1000", "the default waits 10 s on a slot freed in one"),
        Option("publication.name", settings.publication, "made by the installation, insert-only"),
        Option(
            "publication.autocreate.mode",
            "disabled",
            "the default publishes all tables and all operations, and needs a superuser",
        ),
        Option(
            "snapshot.mode",
            "no_data",
            "a snapshot re-emits the whole table; repair is a deliberate re-emission",
        ),
        Option(
            "lsn.flush.mode", "connector", "the slot moves only after Connect stored the position"
        ),
        Option("lsn.flush.timeout.ms", "30000", "bounds one acknowledgement to the database"),
        Option("lsn.flush.timeout.action", "fail", "a slot that cannot be moved must be seen"),
    ]


def _selection() -> list[Option]:
    table = re.escape(f"{names.OUTBOX_SCHEMA}.{names.OUTBOX_TABLE}")
    return [
        Option("table.include.list", table, "the root table; its partitions arrive under its name"),
        Option(
            "skipped.operations",
            "u,d,t",
            "second fence behind the insert-only publication: retention is not usage",
        ),
        Option("tombstones.on.delete", "false", "a delete has no meaning here"),
        Option(
            "heartbeat.interval.ms",
            "0",
            "canary rows move the slot; a heartbeat without its topic stops the flow silently",
        ),
        Option(
            "provide.transaction.metadata",
            "false",
            "one topic and one way to stop silently less; nothing reads it",
        ),
        Option("signal.enabled.channels", "", "nobody may start a snapshot by a signal"),
        Option("config.action.reload", "none", "each start is ours, behind the slot guard"),
    ]


def _failure() -> list[Option]:
    return [
        Option("errors.tolerance", "none", "`all` drops a billing row without a line in the log"),
        Option(
            "event.processing.failure.handling.mode",
            "fail",
            "skip and warn drop the record that could not be read",
        ),
        Option(
            "event.converting.failure.handling.mode",
            "fail",
            "the default puts NULL in place of a value that cannot be converted",
        ),
        Option(
            "errors.max.retries",
            "30",
            "the default, unlimited, shows RUNNING through an outage of any length",
        ),
        Option(
            "retriable.restart.connector.wait.ms",
            "2000",
            "this wait is most of the recovery time after a database crash",
        ),
        Option("errors.retry.timeout", "0", "a converter that failed once fails again"),
        Option("errors.log.enable", "true", "a failure leaves its trace"),
        Option("errors.log.include.messages", "false", "tenants' data stays out of logs"),
    ]


def _speed() -> list[Option]:
    return [
        Option(
            "poll.interval.ms", "50", "92 ms from commit to consumer instead of 603; idle is free"
        ),
        Option("max.batch.size", "2048", "larger batches drained no faster when measured"),
        Option("max.queue.size", "8192", "four batches in hand"),
        Option(
            "max.queue.size.in.bytes",
            "134217728",
            "8,192 rows of the largest payload would not fit a 512 MiB heap",
        ),
    ]


def _wire() -> list[Option]:
    return [
        Option(
            "key.converter", names.STRING_CONVERTER, "the key's own bytes: its hash is its home"
        ),
        Option("value.converter", names.STRING_CONVERTER, "the jsonb text, numbers exact"),
        Option("header.converter", names.STRING_CONVERTER, "headers any tool can read"),
        Option("time.precision.mode", "adaptive", "received_at stays ISO text with microseconds"),
        Option("extended.headers.enabled", "false", "four headers a record that nobody reads"),
    ]


def _router(settings: SourceSettings) -> list[Option]:
    record_topic = names.outbox_record_topic(names.topic_prefix(settings.source))
    return [
        Option("predicates", "isOutbox", "the router must meet outbox rows only"),
        Option("predicates.isOutbox.type", names.PREDICATE_CLASS, "by the name the row carries"),
        Option("predicates.isOutbox.pattern", re.escape(record_topic), "exactly the outbox"),
        Option("transforms", "outbox", "one step: another could drop or change a row"),
        Option("transforms.outbox.type", names.ROUTER_CLASS, "turns an outbox row into a record"),
        Option("transforms.outbox.predicate", "isOutbox", "any other table would stop the task"),
        Option("transforms.outbox.table.field.event.id", "event_id", "header `id`: the identity"),
        Option("transforms.outbox.table.field.event.key", "kafka_key", "one order per tenant"),
        Option("transforms.outbox.table.field.event.payload", "payload", "the value, as written"),
        Option(
            "transforms.outbox.table.fields.additional.placement",
            "event_type:header,schema_version:header,received_at:header,traceparent:header",
            "headers only: an envelope placement would wrap the value in a struct",
        ),
        Option(
            "transforms.outbox.table.field.additional.missing",
            "error",
            "a renamed column stops the connector instead of losing its header",
        ),
        Option(
            "transforms.outbox.table.op.invalid.behavior",
            "fatal",
            "an update of the outbox is a mistake to look at, not to skip",
        ),
        Option(
            "transforms.outbox.table.expand.json.payload",
            "false",
            "expansion rounds numbers and stops the task on a large integer",
        ),
        Option("transforms.outbox.route.by.field", "event_type", "must name a text column"),
        Option("transforms.outbox.route.topic.regex", ".*", "whatever the type says"),
        Option("transforms.outbox.route.topic.replacement", settings.topic, "one constant topic"),
        Option(
            "transforms.outbox.route.tombstone.on.empty.payload",
            "false",
            "a record without a value would be unreadable usage",
        ),
    ]


def _producer(settings: SourceSettings) -> list[Option]:
    prefix = "producer.override."
    chosen = [
        Option(prefix + "acks", "all", "a row counts as sent when every in-sync replica has it"),
        Option(
            prefix + "enable.idempotence",
            "true",
            "Connect switches it off: a retry would reorder or repeat",
        ),
        Option(
            prefix + "max.in.flight.requests.per.connection",
            "5",
            "the most that keeps order under idempotence",
        ),
        Option(prefix + "max.block.ms", "60000", "Connect's default blocks for ever"),
        Option(prefix + "linger.ms", "10", "fuller batches for a tenth of the latency"),
        Option(prefix + "batch.size", "131072", "some 400 rows a request"),
        Option(prefix + "compression.type", "lz4", "cheap, and every client of ours reads it"),
    ]
    if settings.exactly_once:
        chosen += [
            Option("exactly.once.support", "required", "refuse to start on a worker without it"),
            Option("transaction.boundary", "poll", "one transaction a batch"),
        ]
    return chosen
