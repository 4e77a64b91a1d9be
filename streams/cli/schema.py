"""`tailrace schema install|check outbox|ledger`: versioned SQL of the two databases."""

from enum import StrEnum
from typing import Annotated

import typer

from schemas.migrations import Phase, SchemaName, install, load, missing
from streams.cli import terminal
from streams.cli.database import connected, plain
from streams.cli.errors import FINDING, ConfigurationError
from streams.cli.options import Dir, Json, new_app
from streams.cli.stack import Stack, resolve

app = new_app("The SQL of the service's outbox and of the ledger.")


class Which(StrEnum):
    """The two schemas."""

    OUTBOX = "outbox"
    LEDGER = "ledger"


class When(StrEnum):
    """Which migrations: before the code of their release, after it, or both."""

    PRE = "pre"
    POST = "post"
    ALL = "all"


Schema = Annotated[Which, typer.Argument(metavar="outbox|ledger", show_default=False)]
Dsn = Annotated[
    str | None,
    typer.Option("--dsn", help="A superuser's DSN; else the sandbox's, else the settings' own."),
]

_PHASES: dict[When, tuple[Phase, ...]] = {
    When.PRE: ("pre",),
    When.POST: ("post",),
    When.ALL: ("pre", "post"),
}


@app.command("install")
def install_schema(
    schema: Schema,
    directory: Dir = None,
    dsn: Dsn = None,
    source: Annotated[
        str | None,
        typer.Option(help="Outbox only: the source's name, fixed for ever at the first install."),
    ] = None,
    phase: Annotated[When, typer.Option(help="pre before new code, post after old code.")] = (
        When.ALL
    ),
) -> None:
    """Applies what is missing; repeating it changes nothing. Needs a superuser."""
    stack = resolve(directory)
    name: SchemaName = schema.value
    parameters: dict[str, str | int] = {}
    if schema is Which.OUTBOX:
        parameters = {
            "source": source or stack.settings.source,
            "partitions": stack.settings.partitions,
        }
    with connected(_dsn(stack, schema, dsn), f"database of the {name}") as connection:
        applied = install(plain(connection), name, parameters=parameters, phases=_PHASES[phase])
    for line in applied:
        terminal.data(f"applied {line}")
    if not applied:
        terminal.data(f"unchanged: {name} has everything this release needs")


@app.command()
def check(schema: Schema, directory: Dir = None, dsn: Dsn = None, as_json: Json = False) -> None:
    """Names the migrations that are missing; exit 1 when there are any."""
    stack = resolve(directory)
    name: SchemaName = schema.value
    with connected(_dsn(stack, schema, dsn), f"database of the {name}") as connection:
        lacking = missing(plain(connection), name)
    known = len(load(name))
    if as_json:
        terminal.emit_json({"schema": name, "migrations": known, "missing": lacking})
    elif lacking:
        for line in lacking:
            terminal.data(f"missing {line}")
        terminal.say(f"next: `tailrace schema install {name}`")
    else:
        terminal.data(f"ok: {name} has all {known} migrations of this release")
    if lacking:
        raise typer.Exit(FINDING)


def _dsn(stack: Stack, schema: Which, given: str | None) -> str:
    dsn = given or stack.admin_dsn(schema.value)
    if not dsn:
        setting = "SOURCE" if schema is Which.OUTBOX else "LEDGER"
        raise ConfigurationError(
            f"no sandbox found, and TAILRACE_{setting}_DSN not set",
            fix=f"`tailrace schema … {schema.value} --dsn postgresql://…`",
        )
    return dsn


APPS = {"schema": app}
