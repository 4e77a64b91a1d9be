"""`tailrace schema install|upgrade|check outbox|ledger`: versioned SQL of the two databases."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from schemas.migration_files import MigrationFile, migration_files
from schemas.migrations import Phase, SchemaName, install, load, missing
from streams.cli import terminal
from streams.cli.database import Connection, connected, login_of, plain
from streams.cli.errors import FINDING, ConfigurationError, UsageProblemError
from streams.cli.options import Dir, Json, new_app
from streams.cli.schema_role import Wanted, lacking_rights
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
AnyDsn = Annotated[
    str | None,
    typer.Option(
        "--dsn", help="Any login's DSN with --role; else the sandbox's, else the settings' own."
    ),
]

Source = Annotated[
    str | None,
    typer.Option(
        "--source", help="Outbox only: the source's name, fixed for ever at the first install."
    ),
]
Moment = Annotated[When, typer.Option("--phase", help="pre before new code, post after old code.")]

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
    source: Source = None,
    phase: Moment = When.ALL,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write SQL files for a migration tool of your own, and apply nothing.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Applies what is missing; repeating it changes nothing. Needs a superuser.

    With --to it writes versioned SQL files instead, one for each migration: each is run once, in
    the order of their names, by a superuser and in a transaction of its own. Databases made by
    either way are told apart by nothing, and `check` knows both.
    """
    stack = resolve(directory)
    if to is not None:
        parameters = _parameters(stack, schema, source)
        _write(to, migration_files(schema.value, parameters, _PHASES[phase]))
        return
    with connected(_dsn(stack, schema, dsn), f"database of the {schema.value}") as connection:
        _apply(connection, schema, _parameters(stack, schema, source), phase)


@app.command("upgrade")
def upgrade_schema(
    schema: Schema,
    directory: Dir = None,
    dsn: Dsn = None,
    source: Source = None,
    phase: Moment = When.ALL,
) -> None:
    """Brings a schema that is installed to this release; repeating it changes nothing.

    Needs a superuser. A database that has no such schema is refused: the address may be wrong.
    """
    stack = resolve(directory)
    name: SchemaName = schema.value
    with connected(_dsn(stack, schema, dsn), f"database of the {name}") as connection:
        if len(missing(plain(connection), name)) == len(load(name)):
            raise UsageProblemError(
                f"database {connection.info.dbname}: no {name} is installed there",
                fix=f"name the right one with --dsn, or `tailrace schema install {name}`",
            )
        _apply(connection, schema, _parameters(stack, schema, source), phase)


@app.command()
def check(
    schema: Schema,
    directory: Dir = None,
    dsn: AnyDsn = None,
    role: Annotated[
        Wanted | None,
        typer.Option(
            help="Outbox only: what its login lacks of this role's rights.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Names the migrations that are missing, or the rights of a role; exit 1 when there are any."""
    stack = resolve(directory)
    name: SchemaName = schema.value
    if role is not None and schema is not Which.OUTBOX:
        raise UsageProblemError(
            f"--role {role.value}: is a role of the outbox, not of the {name}",
            fix=f"`tailrace schema check outbox --role {role.value}`",
        )
    with connected(_dsn(stack, schema, dsn), f"database of the {name}") as connection:
        lacking = _missing(connection, name) if role is None else lacking_rights(connection, role)
        login = login_of(connection)
    as_whom = {} if role is None else {"role": role.granted, "login": login}
    if as_json:
        known = {"schema": name, "migrations": len(load(name))}
        terminal.emit_json({**known, **as_whom, "missing": lacking})
    else:
        _say(name, lacking, as_whom)
    if lacking:
        raise typer.Exit(FINDING)


def _parameters(stack: Stack, schema: Which, source: str | None) -> dict[str, str | int]:
    if schema is Which.LEDGER:
        return {}
    return {"source": source or stack.settings.source, "partitions": stack.settings.partitions}


def _apply(
    connection: Connection, schema: Which, parameters: Mapping[str, str | int], phase: When
) -> None:
    name: SchemaName = schema.value
    applied = install(plain(connection), name, parameters=parameters, phases=_PHASES[phase])
    for line in applied:
        terminal.data(f"applied {line}")
    if not applied:
        terminal.data(f"unchanged: {name} has everything this release needs")


def _say(name: SchemaName, lacking: Sequence[str], as_whom: Mapping[str, str]) -> None:
    for line in lacking:
        terminal.data(f"missing {line}")
    if lacking and not as_whom:
        verb = "install" if len(lacking) == len(load(name)) else "upgrade"
        terminal.say(f"next: `tailrace schema {verb} {name}`")
    elif lacking:
        login = as_whom["login"].replace('"', '""')
        terminal.say(
            f'next: `GRANT {as_whom["role"]} TO "{login}"` as a superuser; where '
            "functions are missing, `tailrace schema install outbox`"
        )
    elif as_whom:
        terminal.data(f"ok: {as_whom['login']} may do all that {as_whom['role']} is there for")
    else:
        terminal.data(f"ok: {name} has all {len(load(name))} migrations of this release")


def _missing(connection: Connection, name: SchemaName) -> list[str]:
    try:
        return missing(plain(connection), name)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"{login_of(connection)} may not read which migrations the {name} has",
            fix="`tailrace schema check outbox --role writer` asks what this login may do",
        ) from error


def _write(folder: Path, files: Sequence[MigrationFile]) -> None:
    """Writes what is not there; what is there and says something else stays.

    Raises:
        UsageProblemError: a file of that name has another text.
        ConfigurationError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        changed = [
            each.name
            for each in files
            if (folder / each.name).exists()
            and (folder / each.name).read_bytes() != each.text.encode()
        ]
        if changed:
            raise UsageProblemError(
                f"{folder}: {', '.join(changed)}: another text under that name; files that a "
                "database may have are never changed",
                fix="give the same --source and partitions as then, or another folder",
            )
        for each in files:
            word = "unchanged" if (folder / each.name).exists() else "written"
            (folder / each.name).write_bytes(each.text.encode())
            terminal.data(f"{word} {each.name}")
    except OSError as error:
        raise ConfigurationError(
            f"{folder}: cannot be written: {error.strerror}", fix="name another folder"
        ) from error


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
