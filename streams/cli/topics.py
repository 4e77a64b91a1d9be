"""`tailrace topics apply|check`: the broker against the one table of topics."""

import typer

from streams import topics
from streams.cli import terminal
from streams.cli.errors import FINDING
from streams.cli.options import Dir, Json, new_app
from streams.cli.stack import resolve

app = new_app("Kafka's topics, from one table: partitions, retention, clean-up.")


@app.command()
def apply(directory: Dir = None, as_json: Json = False) -> None:
    """Creates what is missing and sets what differs; never changes a partition count."""
    settings = resolve(directory).need("kafka_bootstrap")
    done = topics.apply(
        settings.kafka_bootstrap, partitions=settings.partitions, replication=settings.replication
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
        settings.kafka_bootstrap, partitions=settings.partitions, replication=settings.replication
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


APPS = {"topics": app}
