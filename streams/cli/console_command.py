"""`tailrace console`: the pages for people, on a port of this machine."""

from os import environ
from pathlib import Path
from typing import Annotated

import typer

from streams.adapters.clock import SystemClock
from streams.cli import terminal
from streams.cli.options import Dir
from streams.cli.stack import find_stack, resolve
from streams.console.operators import Operators, read_secret
from streams.console.serve import DEFAULT_HOST, DEFAULT_PORT, Place, serve
from streams.console.visit import Console
from streams.logs import configure_logging

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def console(
    directory: Dir = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Its port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="NAME", help="Also answer to this host name.", show_default=False
        ),
    ] = None,
    workers: Annotated[
        list[str] | None,
        typer.Option(
            "--worker", metavar="URL", help="Address of a worker's metrics.", show_default=False
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who knows its content may decide.", show_default=False),
    ] = None,
) -> None:
    """Pages for people: is money at risk, one event's journey, what waits, who did what.

    It only reads, and only on this machine, unless told otherwise. With --secret-file whoever signs
    in with the content of that file may approve, reject and redrive: as the login of
    TAILRACE_LEDGER_DSN, with their name and reason kept beside it. A second pair of eyes is another
    login, so it comes from a console or a shell of its own. Give --name where people reach it by
    another name, as through what ends TLS before it.
    """
    resolve(directory)  # says at once what is not as it must be; pages ask again
    configure_logging("warning")
    clock = SystemClock()
    secret = None if secret_file is None else read_secret(secret_file)
    shown = Console(
        lambda: find_stack(directory, environ, Path.cwd()),
        Operators(secret, clock),
        tuple(workers or ()),
    )
    place = Place(host, port, frozenset(name.lower() for name in names or ()))
    if not place.is_loopback:
        terminal.say(
            f"note: {host} is reached from other machines, in clear text: put what ends TLS before "
            "it and keep everybody else away"
        )
    serve(shown, place, lambda address: terminal.data(f"console ready: {address}"))


APPS = {"console": app}
