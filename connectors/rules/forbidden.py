"""Options that are refused whatever their value, each with what it would do."""

from connectors.rules.kinds import Forbidden

_OUTBOX = "transforms.outbox."
_PRODUCER = "producer.override."

FORBIDDEN: tuple[Forbidden, ...] = (
    Forbidden(
        "offset.mismatch.strategy",
        "no value protects, two of them skip rows by design, and a "
        "misspelt one passes Connect's validation; the slot guard does this work",
    ),
    Forbidden("offsets.storage.topic", "a second place for positions starts without one"),
    Forbidden("snapshot.", "no snapshot is ever taken; repair is a deliberate re-emission"),
    Forbidden("incremental.snapshot.", "no snapshot is ever taken"),
    Forbidden("legacy.snapshot.max.threads", "no snapshot is ever taken"),
    Forbidden("signal.", "a signal can start a snapshot"),
    Forbidden("read.only", "it belongs to signals, which are off"),
    Forbidden("notification.", "it sends data where nobody looks"),
    Forbidden("openlineage.", "it sends data where nobody looks"),
    Forbidden(
        "topic.creation.",
        "topics are made on purpose, with their partition count: a topic "
        "made by Connect has another one and no history",
    ),
    Forbidden(
        "errors.deadletterqueue.",
        "a source connector has no dead letter queue; it would only look as if it had",
    ),
    Forbidden("slot.stream.params", "it changes what the slot sends"),
    Forbidden("slot.create.", "the slot is made by the installation"),
    Forbidden("replica.identity.autoset.values", "it alters tables of the service"),
    Forbidden("database.initial.statements", "it runs statements the CDC role has no need of"),
    Forbidden("database.sslfactory", "it loads foreign code"),
    Forbidden("database.include.list", "it can leave rows out"),
    Forbidden("database.exclude.list", "it can leave rows out"),
    Forbidden("schema.include.list", "it can leave rows out"),
    Forbidden("schema.exclude.list", "it can leave rows out"),
    Forbidden("table.exclude.list", "it can leave rows out"),
    Forbidden(
        "message.prefix.include.list", "it lets logical messages in, which survive a rollback"
    ),
    Forbidden("message.key.columns", "the router sets the key"),
    Forbidden("column.", "it drops or changes columns of the row"),
    Forbidden("datatype.", "nothing reads it"),
    Forbidden("converters", "a converter can change a value"),
    Forbidden("post.processors", "a processor can change a value"),
    Forbidden("unavailable.value.placeholder", "inserts are always whole"),
    Forbidden("custom.sanitize.pattern", "another pattern can put secrets into the log"),
    Forbidden("sourceinfo.struct.maker", "it loads foreign code"),
    Forbidden("transaction.metadata.factory", "it loads foreign code"),
    Forbidden("memory.management.", "it loads foreign code"),
    Forbidden("guardrail.", "one table is captured"),
    Forbidden("internal.", "switches inside Debezium come without a promise"),
    Forbidden(_OUTBOX + "tracing.", "traceparent travels as a column"),
    Forbidden(
        _OUTBOX + "table.field.event.timestamp",
        "a record dated by the row meets retention at once, or a broker that refuses the future",
    ),
    Forbidden(_OUTBOX + "table.field.event.type", "the router never reads it"),
    Forbidden(_OUTBOX + "table.field.event.schema.version", "it needs another converter"),
    Forbidden(_OUTBOX + "table.json.", "payloads are not expanded"),
    Forbidden(
        _PRODUCER + "bootstrap.servers", "records would go to another cluster than positions"
    ),
    Forbidden(_PRODUCER + "partitioner.", "records must lie where the key's hash says"),
    Forbidden(_PRODUCER + "interceptor.classes", "it loads foreign code that can drop records"),
    Forbidden(_PRODUCER + "transactional.id", "Connect owns it under exactly-once"),
    Forbidden(_PRODUCER + "key.serializer", "Connect owns it"),
    Forbidden(_PRODUCER + "value.serializer", "Connect owns it"),
    Forbidden(_PRODUCER + "retries", "a limit of retries ends in a failed task without need"),
    Forbidden(_PRODUCER + "delivery.timeout.ms", "a shorter one fails the task in a short outage"),
    Forbidden("consumer.override.", "a source has no consumer"),
    Forbidden("admin.override.", "it can point at another cluster"),
    Forbidden("connector.plugin.version", "exactly one version may be installed, so none is named"),
    Forbidden("key.converter.", "the text converter has no options"),
    Forbidden("value.converter.", "the text converter has no options"),
    Forbidden("header.converter.", "the text converter has no options"),
)
