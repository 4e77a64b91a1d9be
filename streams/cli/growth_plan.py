"""What is asked of topics that are to grow → whether it can be, and what is left to do of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from connectors.connect_answers import ConnectorStatus
from connectors.errors import ConnectError
from connectors.names import CONNECTOR_PREFIX
from streams import topic_growth, topics
from streams.cli.database import Connection, login_of, rows
from streams.cli.errors import (
    ConfigurationError,
    TryAgainError,
    UnavailableError,
    UsageProblemError,
)
from streams.cli.growth_steps import written_step
from streams.cli.stack import Stack
from streams.core.growth import growth_problem
from streams.core.identity import log_uuid
from streams.kafka_access import client_security
from streams.settings import Settings

PATIENCE_S: Final = 10.0
"""How long one request to Connect is repeated."""
_VOUCH: Final = "or say that you have stopped every one of them: `--producers-stopped`"


@dataclass(frozen=True, slots=True)
class Growth:
    """From how many partitions to how many, and what of it is done already."""

    root: str
    """The log that the topic's life began with."""
    counts: Mapping[str, int]
    """Partitions by topic, as the broker has them."""
    noted: int | None
    """Those of the events topic by the ledger; None: nobody noted any."""
    present: int
    wanted: int

    @property
    def there(self) -> int:
        """Partitions that the events topic has by the broker."""
        return self.counts[topics.EVENTS]

    @property
    def target(self) -> int:
        """How many every topic will have: of several growths that were forgotten one is told."""
        return max(self.wanted, self.there)

    @property
    def fewer(self) -> list[str]:
        """Topics that have fewer."""
        return [name for name, count in self.counts.items() if count < self.target]

    @property
    def is_untold(self) -> bool:
        """Whether the ledger has to be told."""
        return self.wanted > self.present


def read_growth(settings: Settings, ledger: Connection, wanted: int, before: int | None) -> Growth:
    """What is asked for, if it can be.

    Args:
        settings: of the stack.
        ledger: knows how many partitions there were, and may be told of more.
        wanted: how many there are to be.
        before: how many there were by whoever types the command; None: nobody says.

    Raises:
        CommandError, TopicsError: it cannot.
    """
    security = client_security(settings)
    counts = topic_growth.counts(settings.kafka_bootstrap, security)
    root = log_uuid(topics.id_of(settings.kafka_bootstrap, topics.EVENTS, security))
    known = rows(ledger, "log_grown", {"root": root})
    if not known:
        raise _not_followed(ledger, wanted)
    if not known[0]["may"]:
        raise ConfigurationError(
            f"the login {login_of(ledger)} may not tell the ledger of a growth",
            fix="give TAILRACE_LEDGER_DSN of a member of ledger_finance",
        )
    present = _present(known[0], counts[topics.EVENTS], settings.partitions, wanted, before)
    growth = Growth(root, counts, known[0]["partitions"], present, wanted)
    if present == wanted < growth.there:
        raise UsageProblemError(
            f"{topics.EVENTS} has {growth.there} partitions, of which the ledger knows {present}",
            fix=f"make the others known: `tailrace topics grow --partitions {growth.there}`",
        )
    problem = growth_problem(present, wanted) or _unequal(growth)
    if problem is not None:
        raise UsageProblemError(
            f"--partitions: {wanted}: {problem}", fix="see `tailrace topics check` for the counts"
        )
    if growth.is_untold and growth.there > present:
        _refuse_leap(settings, growth)
    return growth


def _refuse_leap(settings: Settings, growth: Growth) -> None:
    """Told in one, several growths would be other logs than those that workers have state of."""
    step = written_step(settings, growth.root, growth.present, growth.there)
    if step not in {None, growth.wanted}:
        raise UsageProblemError(
            f"--partitions: {growth.wanted}: {topics.EVENTS} grew from {growth.present} to {step} "
            f"first, as workers wrote into {topics.ADMIT_LOG}",
            fix=f"make each growth known by itself: `tailrace topics grow --partitions {step}`, "
            f"then on to {growth.there}",
        )


def _unequal(growth: Growth) -> str | None:
    if growth.target % growth.wanted:
        return f"{topics.EVENTS} has {growth.there}, which is no whole multiple of it"
    more = [f"{name} has {n}" for name, n in growth.counts.items() if n > growth.target]
    if more:
        return f"{', '.join(more)}, more than {growth.target}: partitions cannot be taken away"
    return None


def _not_followed(ledger: Connection, wanted: int) -> ConfigurationError:
    if rows(ledger, "lives", {"topic": topics.EVENTS}):
        return ConfigurationError(
            f"{topics.EVENTS} is another log than the ledger follows",
            fix="go on with it first: `tailrace topics adopt`",
        )
    return ConfigurationError(
        f"{topics.EVENTS} is not followed yet: the ledger was told nothing of it",
        fix=f"while it is empty, delete all topics, set TAILRACE_PARTITIONS={wanted}, "
        "`tailrace topics apply`; else start the workers as they are, and grow then",
    )


def _present(
    known: Mapping[str, Any], there: int, configured: int, wanted: int, said: int | None
) -> int:
    """How many partitions the topic had.

    Args:
        known: what the ledger knows of it.
        there: how many it has by the broker.
        configured: how many workers were set up for.
        wanted: how many it is to have.
        said: how many it had by whoever types the command; None where nobody says.

    Raises:
        UsageProblemError: the ledger knows better, or the broker.
    """
    noted: int | None = known["partitions"]
    if said is not None and said > there:
        raise UsageProblemError(
            f"--from: {said}: {topics.EVENTS} has {there}", fix="say how many it had before"
        )
    if noted is None:
        # Altered already, or set up for the new count already.
        return min(there, configured) if said is None else said
    if said in {None, noted} or (noted == wanted and known["growths"]):
        return noted
    if said is not None and noted == wanted:
        # A ledger that had lost it all was told by workers that the topic began so large.
        return said
    raise UsageProblemError(
        f"--from: {said}: the ledger has noted {noted}", fix="leave --from out: the ledger knows"
    )


def refuse_producers(stack: Stack, *, vouched: bool) -> None:
    """A producer that has not noticed the growth would write to where a key is no more at home.

    Args:
        stack: whose Connect.
        vouched: whether somebody says that all are stopped, where nobody can be asked.

    Raises:
        CommandError: one is not stopped, or nobody can say.
    """
    if not stack.settings.connect_url:
        if not vouched:
            raise ConfigurationError(
                "TAILRACE_CONNECT_URL is not set: whether connectors are stopped is not known",
                fix=f"set it, {_VOUCH}",
            )
        return
    # Loaded for this alone: it brings the client of Connect.
    access = import_module("streams.cli.capture_access")
    try:
        with access.connect_client(stack, PATIENCE_S) as client:
            seen: list[ConnectorStatus] = client.statuses()
    except ConnectError as error:
        if not vouched:
            raise UnavailableError(
                f"whether connectors are stopped is not known: {error}", fix=f"repeat, {_VOUCH}"
            ) from error
        return
    running = [s for s in seen if s.name.startswith(CONNECTOR_PREFIX) and not s.at_rest]
    if running:
        listed = "; ".join(f"{status.name}: {status}" for status in running)
        raise TryAgainError(
            f"connectors are not stopped: {listed}",
            fix="`tailrace connector stop`, with the settings of each of these; then repeat",
        )
