"""How the events topic came to the partitions that it has, as the ledger knows it."""

from streams import topics
from streams.agents.lineage import laid_out
from streams.cli.database import Connection, ledger_rows
from streams.cli.errors import ConfigurationError
from streams.core.growth import lives_of
from streams.core.identity import log_uuid
from streams.engine.layout import Layout


def layouts_of(ledger: Connection, topic_id: str, partitions: int) -> list[Layout]:
    """One of each partition.

    Raises:
        ConfigurationError: it has another count than the ledger knows of.
    """
    lives = lives_of(ledger_rows(ledger, "log_lives", {"root": log_uuid(topic_id)}), partitions)
    if lives and lives[-1].partitions != partitions:
        known = lives[-1].partitions
        raise ConfigurationError(
            f"{topics.EVENTS} has {partitions} partitions, the ledger knows of {known}",
            fix=f"make it known: `tailrace topics grow --partitions {partitions}`",
        )
    return [laid_out(lives, topic_id, partitions, number) for number in range(partitions)]
