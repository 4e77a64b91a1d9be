"""Kafka: reachable, with the topics as the one table wants them, and no others made by chance."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from connectors.names import USAGE_TOPIC
from streams.cli.checkup.check import Check, Fix, Trouble, answers
from streams.cli.checkup.patient import Patient

AUTO_CREATE: Final = "auto.create.topics.enable"
APPLY: Final = Fix("shell", "tailrace topics apply")
_BY_KEY: Final = {
    "cleanup.policy": "compaction",
    "retention.ms": "retention",
    "retention.bytes": "retention",
}
_GROWN: Final = "one that was altered past `tailrace topics grow` is made known by it first"
_WHY: Final = {
    "missing": "nothing can be written to it",
    "partitions": "ids are remembered by partition: with another count copies do not meet",
    "retention": "a record that is gone before it was read is lost",
    "compaction": "the key is the tenant: compaction keeps one event of each",
    "settings": "a guarantee rests on it",
}


def _reached(patient: Patient) -> Iterator[Trouble]:
    return answers(patient.topics())


def kind_of(rule: str) -> str:
    """Which check a finding of `tailrace topics check` belongs to."""
    if rule == "does not exist":
        return "missing"
    if " partitions, " in rule:
        return "partitions"
    return _BY_KEY.get(rule.split(" ", maxsplit=1)[0], "settings")


def _topics(kind: str) -> Callable[[Patient], Iterator[Trouble]]:
    def look(patient: Patient) -> Iterator[Trouble]:
        for finding in patient.topics():
            if kind_of(finding.rule) != kind:
                continue
            fix = _count_fix(patient, finding.topic) if kind == "partitions" else APPLY
            yield Trouble(f"{finding.topic}: {finding.rule}", _WHY[kind], fix)

    return look


def _count_fix(patient: Patient, topic: str) -> Fix:
    """The events topic grows last, so that the others never have fewer than it for long."""
    counts = {
        found.topic: int(found.rule.split(" ")[1])
        for found in patient.topics()
        if kind_of(found.rule) == "partitions"
    }
    count, events = counts[topic], counts.get(USAGE_TOPIC, patient.settings.partitions)
    if count == events:
        return Fix("settings", f"TAILRACE_PARTITIONS={count}  # if it was made so: {_GROWN}")
    return Fix("shell", f'tailrace topics grow --partitions {max(count, events)} --reason "…"')


def _auto_create(patient: Patient) -> Iterator[Trouble]:
    yield from creates_topics(patient.broker_config())


def creates_topics(config: Mapping[str, str]) -> Iterator[Trouble]:
    """Whether a broker makes topics that nobody declared."""
    if config.get(AUTO_CREATE, "true") != "false":
        yield Trouble(
            f"the broker has {AUTO_CREATE}=true",
            "a topic that somebody misspells, or reads before it is made, comes to be with the "
            "broker's partition count, not ours",
            Fix("shell", f"echo {AUTO_CREATE}=false >> server.properties  # then restart it"),
        )


CHECKS: Final[Iterable[Check[Patient]]] = (
    Check("broker", "Kafka answers", _reached, reaches="kafka_bootstrap"),
    Check("topics", "every topic is there", _topics("missing")),
    Check("topic-partitions", "partition counts are the installation's", _topics("partitions")),
    Check("topic-retention", "records stay as long as they may be needed", _topics("retention")),
    Check("topic-compaction", "no topic is compacted", _topics("compaction")),
    Check("topic-settings", "topics keep every other setting", _topics("settings")),
    Check("auto-create", "the broker makes no topic by itself", _auto_create),
)
