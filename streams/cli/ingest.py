"""`tailrace ingest`: usage by HTTP, for producers that have no Postgres; `key` lets one in."""

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from streams.cli import terminal
from streams.cli.errors import ConfigurationError, UsageProblemError
from streams.cli.options import Dir, new_app
from streams.cli.stack import Stack, resolve
from streams.ingest.keys import KeysError, add
from streams.ingest.serve import REQUIRED_BY_INGEST, serve
from streams.logs import configure_logging

app = new_app(
    "Take usage events by HTTP, until SIGTERM or Ctrl-C.\n\n"
    "POST /v1/usage takes one event or up to 1,000, in our own JSON or as CloudEvents, and records "
    "them as metering.record_usage does. It answers after the commit: what was answered is "
    "recorded, and what was not is sent again and counts once. /openapi.json describes it.\n\n"
    "It needs TAILRACE_INGEST_DSN, a member of metering_writer, and TAILRACE_INGEST_KEYS_FILE, to "
    "which `key` adds. It listens on TAILRACE_INGEST_HOST and _PORT in clear text: put what ends "
    "TLS before it."
)
SANDBOX_KEYS: Final = "ingest-keys.toml"
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@app.callback(invoke_without_command=True, no_args_is_help=False)
def ingest(context: typer.Context, directory: Dir = None) -> None:
    """Serves, unless a key is asked for."""
    if context.invoked_subcommand is not None:
        return
    stack = resolve(directory)
    file = keys_file(stack)
    settings = _with_keys(stack, file).need(*REQUIRED_BY_INGEST)
    configure_logging(settings.log_level)
    if settings.ingest_host not in LOOPBACK:
        terminal.say(
            f"note: {settings.ingest_host} is reached from other machines, in clear text: put what "
            "ends TLS before it, or keys are everybody's"
        )
    asyncio.run(serve(settings, lambda address: terminal.data(f"ingest ready: {address}")))


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="Whose: a producer's name.", show_default=False)],
    tenants: Annotated[
        list[str] | None,
        typer.Option(
            "--tenant", metavar="TENANT", help="It may record for this one.", show_default=False
        ),
    ] = None,
    directory: Dir = None,
) -> None:
    """Makes an API key, shows it once, keeps its hash.

    Processes that run see it at once. To take a key back delete its lines; to change it make a
    second one under another name, and delete the first when nobody uses it any more.
    """
    if not tenants:
        raise UsageProblemError(
            "--tenant: a key is bound to the tenants it may record for",
            fix=f"`tailrace ingest key {shlex.quote(name)} --tenant acme`",
        )
    file = keys_file(resolve(directory))
    if file is None:
        raise ConfigurationError(
            "TAILRACE_INGEST_KEYS_FILE not set, and no sandbox found",
            fix="set it to a file that may be made",
        )
    try:
        made = add(file, name, tenants)
    except KeysError as error:
        raise UsageProblemError(str(error), fix=f"look into {file}") from error
    except OSError as error:
        raise ConfigurationError(
            f"{file}: cannot be written: {error.strerror}", fix="name another file, or its folder"
        ) from error
    terminal.say(f"{file}: keys.{name} may record for {', '.join(tenants)}; its key, shown once:")
    terminal.data(made)


def keys_file(stack: Stack) -> Path | None:
    """Where the hashes are: by the settings, else beside the sandbox's file."""
    if stack.settings.ingest_keys_file:
        return Path(stack.settings.ingest_keys_file)
    return None if stack.directory is None else stack.directory / SANDBOX_KEYS


def _with_keys(stack: Stack, file: Path | None) -> Stack:
    settings = replace(stack.settings, ingest_keys_file="" if file is None else str(file))
    return replace(stack, settings=settings)


APPS = {"ingest": app}
