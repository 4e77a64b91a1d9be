"""An exception of any package → what, why, what to type next, and the exit code.

Classes are known here by name, so that a command which never loads Kafka or Stripe does not load
them to report that a file is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from streams.cli.errors import (
    CONFIGURATION,
    FINDING,
    INTERNAL,
    TRY_AGAIN,
    UNAVAILABLE,
    USAGE,
    CommandError,
)
from streams.masking import masked


class Meaning(NamedTuple):
    """What an exception class means to an operator; `fix` is empty where its text says it."""

    exit_code: int
    fix: str


_SCHEMA: Final = "see what is installed with `tailrace schema check outbox` and `… check ledger`"

KNOWN: Final[Mapping[str, Meaning]] = {
    "streams.settings.SettingsError": Meaning(
        CONFIGURATION, "see every setting with `tailrace config show`"
    ),
    "streams.core.audit.UnknownClassError": Meaning(CONFIGURATION, ""),
    "streams.ports.LedgerUnavailableError": Meaning(UNAVAILABLE, "is its PostgreSQL running?"),
    "streams.adapters.ledger_pool.LedgerRefusedError": Meaning(USAGE, ""),
    "streams.adapters.stripe.StripeUnreadableError": Meaning(
        UNAVAILABLE, "check TAILRACE_STRIPE_API_BASE and the key, then repeat"
    ),
    "streams.engine.errors.StateLocked": Meaning(TRY_AGAIN, "is another replay at work there?"),
    "streams.engine.errors.StateUnavailable": Meaning(UNAVAILABLE, "is there room on the disk?"),
    "streams.topics.TopicsError": Meaning(CONFIGURATION, ""),
    "schemas.errors.SchemaError": Meaning(CONFIGURATION, ""),
    "connectors.errors.SettingsRefusedError": Meaning(CONFIGURATION, ""),
    "connectors.errors.ConfigRefusedError": Meaning(CONFIGURATION, ""),
    "connectors.errors.CaptureUnsafeError": Meaning(FINDING, "see `tailrace source guard`"),
    "connectors.errors.SourceUnknownError": Meaning(
        CONFIGURATION, "register it with `tailrace source register`"
    ),
    "connectors.errors.SourceChangedError": Meaning(FINDING, ""),
    "connectors.errors.RepairRefusedError": Meaning(TRY_AGAIN, ""),
    "connectors.errors.ConnectUnavailableError": Meaning(UNAVAILABLE, ""),
    "connectors.errors.StateNotReachedError": Meaning(TRY_AGAIN, ""),
    "connectors.errors.ConnectorUnknownError": Meaning(
        CONFIGURATION, "apply it with `tailrace connector apply`"
    ),
    "connectors.errors.CaptureError": Meaning(CONFIGURATION, ""),
    "psycopg.errors.InvalidParameterValue": Meaning(USAGE, ""),
    "psycopg.errors.ObjectNotInPrerequisiteState": Meaning(FINDING, ""),
    "psycopg.errors.InsufficientPrivilege": Meaning(
        CONFIGURATION, "give the DSN of a role that may do this"
    ),
    "psycopg.errors.UndefinedTable": Meaning(CONFIGURATION, _SCHEMA),
    "psycopg.errors.UndefinedFunction": Meaning(CONFIGURATION, _SCHEMA),
    "psycopg.errors.UndefinedColumn": Meaning(CONFIGURATION, _SCHEMA),
    "psycopg.errors.InvalidSchemaName": Meaning(CONFIGURATION, _SCHEMA),
    "psycopg.errors.LockNotAvailable": Meaning(TRY_AGAIN, "repeat the command"),
    "psycopg.errors.DeadlockDetected": Meaning(TRY_AGAIN, "repeat the command"),
    "psycopg.errors.SerializationFailure": Meaning(TRY_AGAIN, "repeat the command"),
    "psycopg.OperationalError": Meaning(
        UNAVAILABLE, "see `tailrace sandbox status`, or check the DSN, then repeat"
    ),
    "psycopg.Error": Meaning(FINDING, "run it again with --debug and look at the statement"),
    "cimpl.KafkaException": Meaning(
        UNAVAILABLE, "are the brokers of TAILRACE_KAFKA_BOOTSTRAP running?"
    ),
}
"""By qualified name; the nearest class of an exception's own line of descent decides."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What an operator sees of an error."""

    exit_code: int
    what: str
    fix: str

    def lines(self) -> list[str]:
        """`error: …`, and what to do below it."""
        shown = [f"error: {self.what}"]
        if self.fix:
            shown.append(f"  next: {self.fix}")
        return shown


def explain(error: BaseException) -> Shown:
    """The exit code and the words for an exception, without secrets: they go to logs and pages."""
    shown = _meant(error)
    return Shown(shown.exit_code, masked(shown.what), masked(shown.fix))


def _meant(error: BaseException) -> Shown:
    if isinstance(error, CommandError):
        return Shown(error.exit_code, error.what, error.fix)
    for ancestor in type(error).__mro__:
        meaning = KNOWN.get(f"{ancestor.__module__}.{ancestor.__qualname__}")
        if meaning is not None:
            code = meaning.exit_code if not _caused_by_kafka(error) else UNAVAILABLE
            return Shown(code, _text(error), meaning.fix or _hint(error))
    what = f"this is a defect of the command: {type(error).__name__}: {error}"
    return Shown(INTERNAL, what, "run it again with --debug and report what it prints")


def _caused_by_kafka(error: BaseException) -> bool:
    """Topics report a broker that is away by the same class as a wrong topic."""
    cause = error.__cause__
    return cause is not None and type(cause).__qualname__ == "KafkaException"


def _text(error: BaseException) -> str:
    diagnosis = getattr(getattr(error, "diag", None), "message_primary", None)
    if isinstance(diagnosis, str):
        return diagnosis
    return str(error).strip() or type(error).__name__


def _hint(error: BaseException) -> str:
    hint = getattr(getattr(error, "diag", None), "message_hint", None)
    return hint if isinstance(hint, str) else ""
