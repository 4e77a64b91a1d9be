"""`tailrace connector lint|diff|apply|stop|status|heal|…`: the connector, each start guarded."""

from typing import Annotated

import typer

from connectors.apply import STOP_WITHIN_S, Health, Outcome, apply, heal, start
from connectors.config_diff import diff
from connectors.guard_findings import Start
from connectors.linter import Finding, lint, lint_plugins
from connectors.names import connector_name
from connectors.source_config import render
from streams.cli import terminal
from streams.cli.capture_access import Reach, capture_of, connect_client, source_settings
from streams.cli.connector_worker import worker_config
from streams.cli.errors import FINDING, ConfigurationError
from streams.cli.options import Dir, Json, new_app
from streams.cli.repair import repair_command
from streams.cli.stack import resolve

app = new_app("The outbox connector in Kafka Connect.")

Host = Annotated[str | None, typer.Option(help="The database's host as Connect sees it.")]
Port = Annotated[int | None, typer.Option(help="Its port as Connect sees it.")]
Ssl = Annotated[str | None, typer.Option("--ssl-mode", help="verify-full unless a sandbox.")]


@app.command("lint")
def lint_command(
    directory: Dir = None,
    host: Host = None,
    port: Port = None,
    ssl_mode: Ssl = None,
    as_json: Json = False,
) -> None:
    """Refuses unsafe options and plugin versions before they reach Connect; exit 1 on any."""
    stack = resolve(directory)
    config = render(source_settings(stack, Reach(host=host, port=port, ssl_mode=ssl_mode)))
    findings: list[Finding] = lint(config)
    if stack.settings.connect_url:
        with connect_client(stack) as client:
            held = client.config(connector_name(stack.settings.source))
            findings += lint(held) if held is not None and held != config else []
            findings += lint_plugins(client.plugins())
    if as_json:
        terminal.emit_json(
            {"findings": [{"option": f.option, "rule": f.rule, "fix": f.fix} for f in findings]}
        )
    else:
        for finding in findings:
            terminal.data(str(finding))
        if not findings:
            terminal.data(f"ok: {len(config)} options")
    if findings:
        raise typer.Exit(FINDING)


@app.command("diff")
def diff_command(
    directory: Dir = None,
    host: Host = None,
    port: Port = None,
    ssl_mode: Ssl = None,
    as_json: Json = False,
) -> None:
    """What `apply` would change; exit 1 when anything differs."""
    stack = resolve(directory)
    wanted = render(source_settings(stack, Reach(host=host, port=port, ssl_mode=ssl_mode)))
    with connect_client(stack) as client:
        changes = diff(client.config(connector_name(stack.settings.source)), wanted)
    if as_json:
        terminal.emit_json({"changes": [str(change) for change in changes]})
    else:
        for change in changes:
            terminal.data(str(change))
        if not changes:
            terminal.data("no changes")
    if changes:
        raise typer.Exit(FINDING)


@app.command("apply")
def apply_command(
    directory: Dir = None,
    host: Host = None,
    port: Port = None,
    ssl_mode: Ssl = None,
    first: Annotated[
        bool, typer.Option("--first", help="The source was just registered: no position yet.")
    ] = False,
    stopped: Annotated[bool, typer.Option("--stopped", help="Write the config only.")] = False,
) -> None:
    """Writes the config if it differs, and starts the connector behind the slot guard."""
    stack = resolve(directory)
    why = Start.FIRST if first else Start.GO_ON
    with capture_of(stack, Reach(host=host, port=port, ssl_mode=ssl_mode)) as capture:
        applied = apply(capture, why)
        for change in applied.changes:
            terminal.say(str(change))
        terminal.data(f"{capture.name}: config {applied.outcome.value}")
        if not stopped:
            terminal.data(f"{capture.name}: {start(capture, why)}")
        elif applied.outcome is Outcome.CREATED:
            terminal.say("it stands stopped; `tailrace connector apply` starts it")


@app.command("stop")
def stop_command(directory: Dir = None) -> None:
    """Stops the connector and waits until its task has ended; `apply` starts it again.

    Nothing is lost by it: what is recorded waits in the service's database, whose WAL grows
    meanwhile, and comes out from where it stopped. Done twice it changes nothing.
    """
    stack = resolve(directory)
    name = connector_name(stack.settings.source)
    with connect_client(stack) as client:
        seen = client.status(name)
        if seen.at_rest:
            terminal.data(f"{name}: nothing to do, {seen}")
        else:
            seen = client.stop_and_wait(name, within_s=STOP_WITHIN_S)
            terminal.data(f"{name}: {seen}")
    terminal.say(
        "what is recorded waits, and the WAL of the service's database grows; next: `tailrace "
        "connector apply` starts it again, from where it stopped"
    )


@app.command()
def status(directory: Dir = None, as_json: Json = False) -> None:
    """State of the connector and its tasks; exit 1 unless all run."""
    stack = resolve(directory)
    name = connector_name(stack.settings.source)
    with connect_client(stack) as client:
        seen = client.status(name)
    if as_json:
        terminal.emit_json(
            {
                "name": name,
                "state": seen.state,
                "tasks": [{"id": task.id, "state": task.state} for task in seen.tasks],
                "trace": seen.first_trace,
                "running": seen.all_running,
            }
        )
    else:
        terminal.data(f"{name}: {seen}")
        if seen.cause:
            terminal.data(seen.cause)
        if seen.cause != seen.first_trace:
            terminal.say("cut; `tailrace connector status --json` has all of that line")
        if seen.all_running:
            terminal.say("RUNNING is no proof that rows flow; `tailrace status` shows the canaries")
        if seen.stopped:
            terminal.say(
                "a person or the slot guard stopped it, and nothing starts it; next: `tailrace "
                "connector apply`, which looks through the guard first and goes on where it stopped"
            )
    if not seen.all_running:
        raise typer.Exit(FINDING)


@app.command("heal")
def heal_command(directory: Dir = None) -> None:
    """Restarts what failed, looking through the slot guard before each restart."""
    stack = resolve(directory)
    with capture_of(stack, Reach()) as capture:
        healed = heal(capture)
        terminal.data(
            f"{capture.name}: {healed.health.value} after {healed.restarts} restarts, "
            f"{healed.status}"
        )
    for finding in healed.findings:
        terminal.data(str(finding))
    if healed.health is Health.LEFT_ALONE:
        raise ConfigurationError(
            f"{capture.name}: somebody stopped it, and that is respected",
            fix="`tailrace connector apply` starts it behind the guard",
        )
    if healed.health is not Health.RUNNING:
        raise typer.Exit(FINDING)


app.command("repair")(repair_command)
app.command("worker-config")(worker_config)

APPS = {"connector": app}
