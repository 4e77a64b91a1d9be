"""`tailrace source grow`: the topics have more partitions → the outbox sends its canaries to each.

What is shown first is the database's own answer, taken back before somebody has said yes.
"""

from importlib import import_module
from typing import Annotated

import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, row
from streams.cli.errors import ConfigurationError
from streams.cli.options import Dir, Yes
from streams.cli.stack import resolve
from streams.kafka_access import client_security
from streams.settings import Settings


def grow_command(
    partitions: Annotated[
        int, typer.Option(metavar="N", help="As many as the topics have now.", show_default=False)
    ],
    directory: Dir = None,
    yes: Yes = False,
) -> None:
    """Tells a service's database that the topics have more partitions: canaries then go to each.

    Comes after `tailrace topics grow`, once in the database of every source, while its connector
    is stopped. Services record on meanwhile. Done twice it changes nothing.
    """
    settings = resolve(directory).need("source_dsn", "kafka_bootstrap")
    with connected(settings.source_dsn, "the service's database") as connection:
        _refuse_another_source(connection, settings)
        # Taken back: the plan is what the database says of it, and so is a refusal.
        with connection.transaction(force_rollback=True):
            planned = row(connection, "grow_partitions", {"partitions": partitions})
        if planned["action"] == "unchanged":
            terminal.data(f"nothing to do: source {settings.source} {planned['detail']}")
        else:
            _refuse_other_topics(settings, partitions)
            terminal.say(f"plan: source {settings.source} grows {planned['detail']}")
            command = f"tailrace source grow --partitions {partitions}"
            terminal.confirm("This cannot be taken back.", yes=yes, command=command)
            done = row(connection, "grow_partitions", {"partitions": partitions})
            terminal.data(f"{done['action']}: source {settings.source} {done['detail']}")
    terminal.say(
        "next: the same in the database of every other source; then "
        f"TAILRACE_PARTITIONS={partitions} for all workers, their restart, `tailrace connector "
        "apply` for every source, and `tailrace doctor`"
    )


def _refuse_another_source(connection: Connection, settings: Settings) -> None:
    there = row(connection, "outbox_partitions")["source"]
    if there != settings.source:
        raise ConfigurationError(
            f"TAILRACE_SOURCE is {settings.source}, the database of TAILRACE_SOURCE_DSN is {there}",
            fix="let both name one source",
        )


def _refuse_other_topics(settings: Settings, partitions: int) -> None:
    """A canary for a partition that is not there would arrive at another one, and prove nothing."""
    # Loaded for this alone: it brings Kafka's client.
    topics = import_module("streams.topics")
    found = topics.counts(settings.kafka_bootstrap, client_security(settings))
    other = [f"{name} has {count}" for name, count in found.items() if count != partitions]
    if topics.EVENTS not in found:
        other.append(f"there is no {topics.EVENTS}")
    if other:
        grown = found.get(topics.EVENTS, 0)
        raise ConfigurationError(
            f"partitions: {', '.join(other)}, asked for {partitions}",
            fix=f"`tailrace source grow --partitions {grown}`"
            if grown > partitions
            else f"first `tailrace topics grow --partitions {partitions}`",
        )
