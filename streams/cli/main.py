"""`tailrace`: the names of all commands.

A command's module is imported when it is typed, so that `--help` answers at once and `meters check`
does not wait for Kafka's client.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from streams.cli import terminal
from streams.cli.entry import Importing
from streams.cli.fence import fenced
from streams.cli.help import written


class Listed(NamedTuple):
    """Where a command lives, and its line in the help."""

    module: str
    summary: str


COMMANDS: Final[Mapping[str, Listed]] = {
    "demo": Listed("sandbox_commands", "The whole story on a real stack, proved at the end."),
    "sandbox": Listed("sandbox_commands", "The stack on this computer: up, down, status, clock."),
    "drill": Listed("drill", "Break the real stack and see: list, run; ask Stripe: stripe-facts."),
    "stripe-sandbox": Listed("sandbox_commands", "The Stripe stand-in alone, until Ctrl-C."),
    "worker": Listed("worker_command", "Run one worker: admission, facts, publishing."),
    "webhook": Listed("webhook", "Take Stripe's reports of what it accepted and took back."),
    "ingest": Listed("ingest", "Take usage by HTTP, from producers that have no Postgres; key."),
    "exporter": Listed("exporter", "Metrics of what is one for all workers, for Prometheus."),
    "console": Listed("console_command", "Pages for people: is money at risk, and what waits."),
    "status": Listed("status", "What waits, what is parked, whether everything is alive."),
    "doctor": Listed("doctor", "Every check of an installation, each trouble with its fix."),
    "trace": Listed("trace", "One event's whole journey, from outbox row to Stripe's answer."),
    "audit": Listed("audit", "Prove it: registry = ledger = Stripe; exit 1 on any difference."),
    "reconcile": Listed(
        "reconcile", "The ledger against Stripe's sums: what is proven, what nobody explains."
    ),
    "ledger": Listed(
        "ledger_command", "The ledger itself: log of what was done, adopt a restored one."
    ),
    "meters": Listed("meters", "The meter catalogue: check and apply meters.toml."),
    "customers": Listed("customers", "Which Stripe customer pays for a tenant: map, list."),
    "windows": Listed("windows", "What a tenant's windows came to, and wait for: list, show."),
    "statement": Listed(
        "statement",
        "A tenant's month, recorded to billed, down to event ids; exit 1 if it does not foot.",
    ),
    "export": Listed(
        "export", "Events, levels, entries, requests as CSV or Parquet, a file a day."
    ),
    "archive": Listed(
        "archive", "Accepted usage of proven days, kept outside Kafka for good: run, check."
    ),
    "erase": Listed(
        "erase", "Forget what a tenant's service wrote in words: plan, receipt, what expires when."
    ),
    "replay": Listed(
        "replay", "The events topic decided again: 0 differences, or what other rules would give."
    ),
    "review": Listed("review", "What a person decides on: list, show, approve, reject."),
    "dead": Listed("dead", "What cannot be used or sent: list, show, redrive."),
    "correct": Listed("correct", "Signed corrections: preview, book, reverse, approve another's."),
    "rejections": Listed("rejections", "What Stripe took back: list, sweep."),
    "held": Listed("held_records", "Records that hold their partition: list, skip, name."),
    "findings": Listed(
        "findings", "What contradicts the ledger or is wrong at Stripe: list, clear."
    ),
    "pause": Listed("pauses", "Publishing stands still for all, a meter or a tenant; list."),
    "resume": Listed("pauses", "Publishing goes on where it was paused."),
    "carry": Listed("carry", "Amounts that missed their invoice: list, apply."),
    "deadlines": Listed("deadlines", "What will miss its invoice, before it does, and what has."),
    "topics": Listed("topics", "Kafka's topics: apply, check, grow, adopt."),
    "schema": Listed("schema", "The SQL of outbox and ledger: install, upgrade, check."),
    "connector": Listed(
        "connector", "The outbox connector: lint, diff, apply, status, heal, repair; worker-config."
    ),
    "source": Listed("source", "The service's database as a source: register, guard."),
    "config": Listed("config", "Settings: check, show."),
}


MEANT: Final[Mapping[str, str]] = {
    "approve": "review approve",
    "bill": "statement",
    "check": "doctor",
    "event": "trace",
    "explain": "trace",
    "find": "trace",
    "health": "status",
    "invoice": "statement",
    "log": "ledger log",
    "logs": "ledger log",
    "map": "customers map",
    "redrive": "dead redrive",
    "show": "trace",
    "up": "sandbox up",
    "where": "trace",
    "why": "trace",
}
"""What somebody types who does not know our word, and what it is called here."""


class LazyGroup(TyperGroup):
    """Knows every command by name and line, and loads one when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # names to suggest from; `get_command` gives the commands

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # typer's public Context is the type of its private one
        """In the order in which a newcomer needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # the same
        """The command, imported now."""
        del ctx
        return loaded(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]  # the same
        """The command, or the nearest by spelling, which is typer's; by meaning, which is ours."""
        meant = MEANT.get(args[0]) if args else None
        if meant is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # the same
        """The list, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.summary) for name, listed in COMMANDS.items()])


def loaded(name: str) -> Any:
    """Imports a command's module and gives its command."""
    with Importing():
        module = import_module(f"streams.cli.{COMMANDS[name].module}")
    command = typer.main.get_command(module.APPS[name])
    command.name = name
    return command


app = typer.Typer(
    cls=LazyGroup,
    name="tailrace",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        # Imported here: it alone would cost a third of the time that --help may take.
        metadata = import_module("importlib.metadata")
        typer.echo(f"tailrace {metadata.version('tailrace')}")
        raise typer.Exit


EXIT_CODES: Final = (
    "Exit codes: 0 fine, 1 a finding, 2 usage, 69 unavailable, 75 try again, 78 configuration."
)


@app.callback(epilog=EXIT_CODES)
def root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; may stand after any command.")
    ] = False,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Usage-based billing from a service's own Postgres to Stripe: nothing lost, nothing double."""
    del debug, show_version  # taken out of the arguments by the fence and by its callback


def run(arguments: Sequence[str]) -> int:
    """One command line → its exit code. Blocks for as long as the command runs."""
    return fenced(_answer, "tailrace", arguments)


def _answer(*, args: Sequence[str], **how: Any) -> Any:
    text = written(args)
    if text is None:
        return app(args=list(args), **how)
    terminal.data(text)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
