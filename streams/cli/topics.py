"""`tailrace topics apply|check|grow|adopt`: the broker against the one table of topics.

A topic of usage that was lost and made anew is another log, which nobody reads before a person has
adopted it: workers then go on in it with what the ledger holds of the life before.
"""

import shlex
from typing import Any

import typer

from streams import topics
from streams.cli import terminal
from streams.cli.database import connected, rows
from streams.cli.errors import FINDING, ConfigurationError
from streams.cli.growth import grow
from streams.cli.options import Dir, Json, Reason, Yes, kept_reason, new_app
from streams.cli.stack import resolve
from streams.core.growth import growth_problem
from streams.core.identity import log_uuid
from streams.core.instant import wire_text
from streams.kafka_access import client_security

app = new_app("Kafka's topics, from one table: partitions, retention, clean-up.")


@app.command()
def apply(directory: Dir = None, as_json: Json = False) -> None:
    """Creates what is missing and sets what differs; never changes a partition count."""
    settings = resolve(directory).need("kafka_bootstrap")
    done = topics.apply(
        settings.kafka_bootstrap,
        partitions=settings.partitions,
        replication=settings.replication,
        security=client_security(settings),
    )
    if as_json:
        terminal.emit_json({"done": done})
        return
    for line in done or [f"unchanged: {len(topics.TOPICS)} topics are as they must be"]:
        terminal.data(line)


@app.command()
def check(directory: Dir = None, as_json: Json = False) -> None:
    """Compares the broker with the table; exit 1 on any difference."""
    settings = resolve(directory).need("kafka_bootstrap")
    findings = topics.check(
        settings.kafka_bootstrap,
        partitions=settings.partitions,
        replication=settings.replication,
        security=client_security(settings),
    )
    if as_json:
        terminal.emit_json(
            {
                "findings": [
                    {"topic": f.topic, "rule": f.rule, "fix": f.fix, "fatal": f.fatal}
                    for f in findings
                ]
            }
        )
    else:
        for finding in findings:
            terminal.data(f"{finding.topic}: {finding.rule}; {finding.fix}")
        if not findings:
            terminal.data(f"ok: {len(topics.TOPICS)} topics")
    if findings:
        raise typer.Exit(FINDING)


app.command("grow")(grow)


@app.command()
def adopt(reason: Reason = None, directory: Dir = None, yes: Yes = False) -> None:
    """Goes on with an events topic that was deleted and created again, or restored.

    Workers that are started afterwards remember what the ledger holds of the topic before, of all
    its growths, so copies of it count nothing; everything else counts once the source has sent it
    again. The new topic has as many partitions, or a whole multiple. Done twice it changes nothing.
    """
    command = "tailrace topics adopt"
    why = kept_reason(reason, command)
    settings = resolve(directory).need("kafka_bootstrap", "ledger_dsn")
    security = client_security(settings)
    log_id = log_uuid(topics.id_of(settings.kafka_bootstrap, topics.EVENTS, security))
    partitions = topics.counts(settings.kafka_bootstrap, security)[topics.EVENTS]
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        lives = rows(ledger, "lives", {"topic": topics.EVENTS})
        if not lives:
            terminal.data(f"nothing to adopt: the ledger follows no log of {topics.EVENTS} yet")
            return
        for life in lives:
            if life["log_id"] == log_id:
                opened = wire_text(life["opened_us"])
                said = f"{log_id} is followed since {opened}: {life['reason']}"
                terminal.data(f"nothing to adopt: {topics.EVENTS} {said}")
                return
        for line in _continuing(lives[0], log_id, partitions):
            terminal.say(line)
        full = f"{command} --reason {shlex.quote(why)}"
        terminal.confirm("This cannot be taken back.", yes=yes, command=full)
        rows(ledger, "open_log", {"topic": topics.EVENTS, "log_id": log_id, "why": why})
    terminal.data(f"adopted: {topics.EVENTS} {log_id}")
    terminal.say(
        "next: start the workers again, `tailrace connector repair --even-if-healthy`, then "
        "`tailrace audit`, until it says lost 0"
    )


def _continuing(before: dict[str, Any], log_id: str, partitions: int) -> list[str]:
    """The plan.

    Args:
        before: the life of the topic that was followed.
        log_id: the topic's now.
        partitions: how many it has.

    Raises:
        ConfigurationError: its partitions could not remember those of before.
    """
    noted = before["partitions"]
    if noted is not None and growth_problem(noted, partitions) is not None:
        raise ConfigurationError(
            f"{topics.EVENTS} has {partitions} partitions, and had {noted} before: keys of one "
            "partition would be in several that do not remember it",
            fix=f"delete it, set TAILRACE_PARTITIONS={noted}, `tailrace topics apply`, then repeat",
        )
    plan = (
        f"plan: {topics.EVENTS} is {log_id} from now on; of {before['log_id']}, the life before, "
        f"the ledger holds {before['records']} records in {before['held']} partitions, which stay "
        "counted; what else was in it has to be sent again"
    )
    if noted is None:
        unsure = f"the ledger has not noted how many partitions it had: it must be {partitions}"
        return [plan, unsure]
    return [plan]


APPS = {"topics": app}
