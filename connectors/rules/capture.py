"""Rules of the options that say what is read, from where, and at which position."""

import re

from connectors import names
from connectors.rules.kinds import Rule, between, exactly, free, like, operations, placeholder

PREFIX = re.compile(r"src\.[a-z][a-z0-9_-]{0,62}")
HEARTBEAT_QUERY = "SELECT pg_logical_emit_message(false,'metering.hb','x')"
_HOST = re.compile(r"\S{1,255}")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")

CAPTURE_RULES: tuple[Rule, ...] = (
    # connection
    like(
        "name",
        re.compile(r"[A-Za-z0-9_-]{1,200}"),
        "a plain name",
        why="it stands in a URL",
        required=False,
    ),
    exactly("connector.class", names.CONNECTOR_CLASS, why="these rules know no other connector"),
    exactly("tasks.max", "1", why="a slot has one reader"),
    exactly(
        "tasks.max.enforce", "true", why="a second task would fight for the slot", required=False
    ),
    like("database.hostname", _HOST, "a host name", why="Debezium's error would blame the login"),
    between("database.port", 1, 65535, why="a guessed port may be another database", required=True),
    free(
        "database.dbname",
        "the outbox's database",
        why="a slot belongs to one database",
        required=True,
    ),
    free(
        "database.user",
        "the CDC role",
        why="the operator's own login may do too much",
        required=True,
    ),
    placeholder("database.password", required=True),
    exactly(
        "database.sslmode",
        "verify-full",
        "verify-ca",
        "require",
        "disable",
        why="prefer and allow fall back to plain text, and to any server",
    ),
    free("database.sslrootcert", "a path", why="it is read by the worker"),
    free("database.sslcert", "a path", why="it is read by the worker"),
    free("database.sslkey", "a path", why="it is read by the worker"),
    placeholder("database.sslpassword", required=False),
    exactly("database.tcpKeepAlive", "true", why="a dead peer would look alive", required=False),
    between("database.query.timeout.ms", 1_000, 3_600_000, why="0 waits for ever"),
    between("connection.validation.timeout.ms", 1_000, 300_000, why="0 waits for ever"),
    # position
    like(
        "topic.prefix",
        PREFIX,
        "src. and the source's name",
        why="it is the key of the stored position; another one starts without a position",
    ),
    exactly("plugin.name", "pgoutput", why="the default, decoderbufs, is not part of PostgreSQL"),
    like(
        "slot.name",
        _IDENTIFIER,
        "a slot made by the installation",
        why="the default, debezium, is a slot nobody guards",
    ),
    exactly("slot.drop.on.stop", "false", why="rows written while stopped would be lost"),
    exactly(
        "slot.failover",
        "false",
        required=False,
        why="it acts only where Debezium makes the slot, which must not happen",
    ),
    between(
        "slot.max.retries",
        10,
        600,
        required=True,
        why="after a crash the old session may hold the slot for a minute",
    ),
    between(
        "slot.retry.delay.ms", 100, 10_000, why="the flow stands still meanwhile", required=True
    ),
    like(
        "publication.name",
        _IDENTIFIER,
        "the insert-only publication",
        why="the default publication publishes everything",
    ),
    exactly(
        "publication.autocreate.mode",
        "disabled",
        why="the others publish updates, deletes and truncates, and need more rights",
    ),
    exactly(
        "publish.via.partition.root",
        "true",
        required=False,
        why="partitions would arrive under their own names and miss the router",
    ),
    exactly("snapshot.mode", "no_data", why="any other mode re-emits the table blindly"),
    exactly(
        "lsn.flush.mode",
        "connector",
        why="the slot may move only after Connect has stored the position",
    ),
    between("lsn.flush.timeout.ms", 1_000, 120_000, why="0 or hours hide a hanging database"),
    exactly("lsn.flush.timeout.action", "fail", why="a slot that cannot be moved must be seen"),
    exactly(
        "flush.lsn.source", "true", why="the WAL would grow until the slot is lost", required=False
    ),
    between(
        "status.update.interval.ms",
        100,
        20_000,
        why="the server cuts a reader that is silent for its wal_sender_timeout",
    ),
    exactly("xmin.fetch.interval.ms", "0", why="a query nobody reads", required=False),
    between("create.slot.command.timeout", 1, 600, why="0 waits for ever"),
    # selection
    exactly(
        "table.include.list",
        re.escape(f"{names.OUTBOX_SCHEMA}.{names.OUTBOX_TABLE}"),
        why="anything else leaves rows out or feeds the router foreign rows",
    ),
    exactly("table.ignore.builtin", "true", why="system tables are not usage", required=False),
    operations(
        "skipped.operations",
        "u",
        "d",
        "t",
        why="skipping c loses usage; not skipping the others stops at retention",
    ),
    exactly("tombstones.on.delete", "false", why="a record without a value is unreadable usage"),
    between(
        "heartbeat.interval.ms", 0, 600_000, why="it is a number of milliseconds", required=True
    ),
    exactly(
        "heartbeat.action.query",
        HEARTBEAT_QUERY,
        required=False,
        why="other statements need rights on tables and feed the router foreign rows",
    ),
    exactly(
        "heartbeat.topics.prefix",
        "__debezium-heartbeat",
        required=False,
        why="the topic to check for would be another one",
    ),
    exactly(
        "message.prefix.exclude.list",
        "metering.hb",
        r"metering\.hb",
        required=False,
        why="it may exclude the heartbeat's messages and nothing else",
    ),
    exactly("provide.transaction.metadata", "true", "false", why="the default may change"),
    exactly("signal.enabled.channels", "", why="a signal can start a snapshot"),
    exactly("config.action.reload", "none", why="Connect would restart tasks behind the guard"),
    exactly("schema.refresh.mode", "columns_diff", why="the other skips a check", required=False),
    exactly("skip.messages.without.change", "false", why="it drops records", required=False),
    exactly("include.unknown.datatypes", "false", why="the outbox has none", required=False),
    exactly("include.schema.comments", "false", why="nothing reads them", required=False),
    exactly("streaming.delay.ms", "0", why="latency for nothing", required=False),
)
