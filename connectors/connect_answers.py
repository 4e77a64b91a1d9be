"""What Kafka Connect's REST interface answers, as values; shapes are checked when decoded."""

from typing import Final

import msgspec

CAUSE_CHARS_MAX: Final = 240


class Plugin(msgspec.Struct, frozen=True):
    """One connector, transformation or converter a worker can load."""

    class_name: str = msgspec.field(name="class")
    type: str
    version: str = ""


class Worker(msgspec.Struct, frozen=True):
    """The worker that answered."""

    version: str
    kafka_cluster_id: str


class TaskState(msgspec.Struct, frozen=True):
    """State of one task."""

    id: int
    state: str
    worker_id: str = ""
    trace: str = ""


class _ConnectorPart(msgspec.Struct, frozen=True):
    state: str
    worker_id: str = ""
    trace: str = ""


class ConnectorStatus(msgspec.Struct, frozen=True):
    """State of a connector and of each of its tasks.

    The connector says RUNNING while its task has failed, and both say RUNNING while nothing flows:
    neither is proof of anything but the absence of a reported failure.
    """

    name: str
    connector: _ConnectorPart
    tasks: list[TaskState]

    @property
    def state(self) -> str:
        """The connector's own state, which says nothing of its tasks."""
        return self.connector.state

    @property
    def all_running(self) -> bool:
        """Whether the connector and at least one task run, and no task does anything else."""
        return (
            self.state == "RUNNING"
            and bool(self.tasks)
            and all(task.state == "RUNNING" for task in self.tasks)
        )

    @property
    def stopped(self) -> bool:
        """Whether somebody, or the guard, stopped or paused it: it stays so until it is started."""
        return self.state in {"STOPPED", "PAUSED"}

    @property
    def at_rest(self) -> bool:
        """Whether it is stopped and its last task has ended; a paused one keeps its task."""
        return self.state == "STOPPED" and not self.tasks

    @property
    def failed(self) -> bool:
        """Whether the connector or any task has failed."""
        return self.state == "FAILED" or any(task.state == "FAILED" for task in self.tasks)

    @property
    def traces(self) -> str:
        """Every failure's whole trace; empty when nothing failed."""
        return "\n".join([self.connector.trace, *(task.trace for task in self.tasks)]).strip()

    @property
    def first_trace(self) -> str:
        """First line of the first failure's trace, or empty."""
        return self.traces.partition("\n")[0]

    @property
    def cause(self) -> str:
        """What a person reads of it: Debezium puts its whole position into that first line."""
        line = self.first_trace
        return line if len(line) <= CAUSE_CHARS_MAX else f"{line[:CAUSE_CHARS_MAX]}…"

    def __str__(self) -> str:
        """`connector RUNNING, task 0 FAILED`, as an operator reads it."""
        parts = [f"connector {self.state}"]
        parts += [f"task {task.id} {task.state}" for task in self.tasks] or ["no tasks"]
        return ", ".join(parts)


class Expanded(msgspec.Struct, frozen=True):
    """A connector in the list of all."""

    status: ConnectorStatus


class SourceOffset(msgspec.Struct, frozen=True):
    """Debezium's stored position; bytes from the start of the WAL."""

    lsn: int | None = None
    """Position of the last record. Not a watermark: a row of an older transaction lies lower."""
    lsn_proc: int | None = None
    """Position of the last record handled completely."""
    lsn_commit: int | None = None
    """Position of the last commit handled; absent until a second transaction has been handled."""

    @property
    def safe_lsn(self) -> int | None:
        """The watermark the slot must not have passed: the last commit, else the last handled."""
        return self.lsn_proc if self.lsn_commit is None else self.lsn_commit


class StoredOffset(msgspec.Struct, frozen=True):
    """One stored position and the prefix it belongs to."""

    partition: dict[str, str]
    offset: SourceOffset | None


class Offsets(msgspec.Struct, frozen=True):
    """All positions Connect holds for a connector."""

    offsets: list[StoredOffset]

    def of(self, prefix: str) -> SourceOffset | None:
        """The position stored under a topic prefix, or None."""
        for stored in self.offsets:
            if stored.partition.get("server") == prefix:
                return stored.offset
        return None

    @property
    def prefixes(self) -> frozenset[str]:
        """Every topic prefix that has a position."""
        return frozenset(stored.partition.get("server", "") for stored in self.offsets)


class _FieldValue(msgspec.Struct, frozen=True):
    name: str
    errors: list[str] = []


class _Field(msgspec.Struct, frozen=True):
    value: _FieldValue


class Validation(msgspec.Struct, frozen=True):
    """Connect's own opinion of a config; it logs in to the database for it."""

    error_count: int
    configs: list[_Field]

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each error."""
        return tuple(
            f"{field.value.name}: {error}" for field in self.configs for error in field.value.errors
        )


class Refusal(msgspec.Struct, frozen=True):
    """The body of an error answer."""

    message: str = ""
