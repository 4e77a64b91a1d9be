"""`tailrace source register|guard|grow`: which database a source is, and whether rows are safe."""

from typing import Annotated

import typer

from connectors.guard_findings import Start, must_stop
from connectors.source_registry import register
from streams.cli import terminal
from streams.cli.capture_access import Reach, capture_of, seen_identity, sources
from streams.cli.errors import FINDING
from streams.cli.options import Dir, Json, new_app
from streams.cli.source_grow import grow_command
from streams.cli.stack import resolve

app = new_app("A service's database as a source of usage.")


@app.command("register")
def register_source(directory: Dir = None) -> None:
    """Remembers cluster and timeline once; another database under this name is refused."""
    stack = resolve(directory)
    seen = seen_identity(stack)
    with sources(stack) as store:
        fresh = register(store, seen)
    done = "registered" if fresh else "was registered before, and is the same database"
    terminal.data(
        f"source {seen.source}: {done} (cluster {seen.system_identifier}, timeline {seen.timeline})"
    )
    if fresh:
        terminal.say("next: `tailrace connector apply --first`")


@app.command()
def guard(
    directory: Dir = None,
    first: Annotated[
        bool, typer.Option("--first", help="Judge as for the very first start.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Looks once, changes nothing: would starting the connector now lose rows? Exit 1 if so."""
    stack = resolve(directory)
    with capture_of(stack, Reach()) as capture:
        findings = capture.look(Start.FIRST if first else Start.GO_ON)
    if as_json:
        terminal.emit_json(
            {
                "source": stack.settings.source,
                "safe": not must_stop(findings),
                "findings": [
                    {
                        "rule": finding.rule,
                        "severity": finding.severity.value,
                        "evidence": finding.evidence,
                        "repair": finding.repair,
                    }
                    for finding in findings
                ],
            }
        )
    else:
        for finding in findings:
            terminal.data(f"{finding.severity.value}: {finding}")
        if not findings:
            terminal.data(f"ok: source {stack.settings.source}, slot and connector are safe")
    if findings:
        raise typer.Exit(FINDING)


app.command("grow")(grow_command)

APPS = {"source": app}
