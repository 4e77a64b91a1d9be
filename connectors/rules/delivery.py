"""Rules of the options that say how rows become records, and what a failure does."""

import re

from connectors import names
from connectors.rules.kinds import Rule, between, exactly, free, like

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OUTBOX = "transforms.outbox."
_PRODUCER = "producer.override."

DELIVERY_RULES: tuple[Rule, ...] = (
    # failure
    exactly("errors.tolerance", "none", why="all drops billing rows without a line in the log"),
    exactly("event.processing.failure.handling.mode", "fail", why="the others drop the record"),
    exactly(
        "event.converting.failure.handling.mode",
        "fail",
        why="the others put NULL in place of a value, or drop the record",
    ),
    between(
        "errors.max.retries",
        1,
        120,
        required=True,
        why="the default, unlimited, shows RUNNING through an outage of any length",
    ),
    between(
        "retriable.restart.connector.wait.ms",
        100,
        30_000,
        required=True,
        why="it is most of the recovery time after a database crash",
    ),
    exactly("errors.retry.timeout", "0", why="a converter that failed once fails again"),
    between("errors.retry.delay.max.ms", 100, 60_000, why="it bounds a retry's wait"),
    exactly("errors.log.enable", "true", why="a failure must leave its trace"),
    exactly("errors.log.include.messages", "false", why="tenants' data does not belong in logs"),
    between("executor.shutdown.timeout.ms", 1_000, 30_000, why="a stop must end"),
    # speed
    between(
        "poll.interval.ms", 1, 5_000, why="it is the latency from commit to topic", required=True
    ),
    between("max.batch.size", 1, 65_536, why="it is held in memory", required=True),
    between("max.queue.size", 2, 262_144, why="it is held in memory", required=True),
    between(
        "max.queue.size.in.bytes",
        1 << 24,
        1 << 30,
        required=True,
        why="0 bounds nothing: a queue of large rows ends the worker",
    ),
    exactly("statistics.metrics.enabled", "true", "false", why="a switch", required=False),
    free("custom.metric.tags", "key=value pairs", why="they name metrics"),
    # wire
    *(
        exactly(
            f"{part}.converter",
            names.STRING_CONVERTER,
            why="others quote, wrap or round what the outbox wrote",
        )
        for part in ("key", "value", "header")
    ),
    exactly("time.precision.mode", "adaptive", why="received_at must stay ISO text"),
    exactly("extended.headers.enabled", "false", why="four headers a record that nobody reads"),
    exactly("decimal.handling.mode", "precise", why="double rounds", required=False),
    exactly(
        "binary.handling.mode", "bytes", why="the outbox has no binary columns", required=False
    ),
    exactly("schema.name.adjustment.mode", "none", why="names stay as written", required=False),
    exactly(
        "field.name.adjustment.mode",
        "none",
        why="the router looks columns up by name",
        required=False,
    ),
    exactly(
        "topic.naming.strategy",
        "io.debezium.schema.SchemaTopicNamingStrategy",
        why="the predicate knows rows by the name this strategy gives",
        required=False,
    ),
    # router
    exactly("predicates", "isOutbox", why="without it a foreign row stops the task"),
    exactly("predicates.isOutbox.type", names.PREDICATE_CLASS, why="rows are known by name"),
    free(
        "predicates.isOutbox.pattern",
        "the outbox's record name",
        why="a wrong pattern sends outbox rows past the router",
        required=True,
    ),
    exactly("transforms", "outbox", why="another step could drop or change a row"),
    exactly(_OUTBOX + "type", names.ROUTER_CLASS, why="it turns an outbox row into a record"),
    exactly(_OUTBOX + "predicate", "isOutbox", why="without it a foreign row stops the task"),
    exactly(
        _OUTBOX + "negate", "false", why="the router would meet all but the outbox", required=False
    ),
    exactly(_OUTBOX + "table.field.event.id", "event_id", why="the header must be the identity"),
    exactly(
        _OUTBOX + "table.field.event.key",
        "kafka_key",
        why="another key puts records where their state is not",
    ),
    exactly(_OUTBOX + "table.field.event.payload", "payload", why="it is the usage event"),
    exactly(
        _OUTBOX + "table.fields.additional.placement",
        "event_type:header,schema_version:header,received_at:header,traceparent:header",
        why="an envelope placement wraps the value, a partition placement moves the record",
    ),
    exactly(
        _OUTBOX + "table.field.additional.missing",
        "error",
        why="a renamed column would lose its header silently",
    ),
    exactly(_OUTBOX + "table.op.invalid.behavior", "fatal", why="warn and error skip the record"),
    exactly(
        _OUTBOX + "table.expand.json.payload",
        "false",
        why="expansion rounds numbers and stops at a large integer",
    ),
    exactly(_OUTBOX + "route.by.field", "event_type", why="it must be a text column"),
    exactly(_OUTBOX + "route.topic.regex", ".*", why="every type goes to the one topic"),
    like(
        _OUTBOX + "route.topic.replacement",
        _TOPIC,
        "one constant topic",
        why="a row's content could invent a topic, and an unknown topic stops the flow",
    ),
    exactly(
        _OUTBOX + "route.tombstone.on.empty.payload",
        "false",
        why="a record without a value is unreadable usage",
    ),
    # producer
    exactly(_PRODUCER + "acks", "all", "-1", why="a lost broker would lose acknowledged rows"),
    exactly(
        _PRODUCER + "enable.idempotence",
        "true",
        why="Connect switches it off: a retry then reorders or repeats",
    ),
    between(
        _PRODUCER + "max.in.flight.requests.per.connection",
        1,
        5,
        required=True,
        why="more than 5 loses order under idempotence",
    ),
    between(
        _PRODUCER + "max.block.ms",
        1_000,
        300_000,
        required=True,
        why="Connect's default blocks for ever on a topic that does not exist",
    ),
    between(_PRODUCER + "linger.ms", 0, 1_000, why="it is added to the latency"),
    between(_PRODUCER + "batch.size", 16_384, 1 << 20, why="tiny batches are slow"),
    between(_PRODUCER + "buffer.memory", 1 << 22, 1 << 30, why="it is held in memory"),
    between(
        _PRODUCER + "max.request.size",
        1 << 20,
        1 << 24,
        why="below 1 MiB a large row stops the task",
    ),
    exactly(
        _PRODUCER + "compression.type",
        "lz4",
        "zstd",
        "snappy",
        "gzip",
        "none",
        why="readers know these",
        required=False,
    ),
    free(_PRODUCER + "client.id", "a name", why="it names metrics"),
    exactly(
        "exactly.once.support",
        "requested",
        "required",
        why="Connect knows these two",
        required=False,
    ),
    exactly(
        "transaction.boundary", "poll", why="others leave rows uncommitted for long", required=False
    ),
)
