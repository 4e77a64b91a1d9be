"""`tailrace sandbox`: the real stack on one machine, without Docker.

Starts PostgreSQL, Kafka, Kafka Connect with Debezium, a Stripe stand-in with the webhook that it
tells of what it takes back, and workers, as native processes under a supervisor, keeps them
running, and stops them in order.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sandbox import clock, control, wanted
from sandbox.control import Console
from sandbox.faults import explained
from sandbox.paths import Paths, find_paths
from sandbox.up import up as start_everything
from streams.cli.fence import fenced
from streams.cli.main import EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("sandbox")

app = typer.Typer(
    help=__doc__,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Directory of the sandbox. Default: TAILRACE_DIR, else .tailrace/ here.",
        show_default=False,
    ),
]


def _paths(option: Path | None) -> Paths:
    return find_paths(option, os.environ, Path.cwd())


def _console() -> Console:
    return Console(typer.echo, lambda text: typer.echo(text, err=True))


@app.command()
def up(
    directory: Dir = None,
    workers: Annotated[
        int, typer.Option(min=0, max=12, help="How many workers to run, each one process.")
    ] = 1,
    stripe: Annotated[
        str | None,
        typer.Option(
            help="API base of another Stripe, such as https://api.stripe.com. The key comes from "
            "TAILRACE_STRIPE_API_KEY. Default: the stand-in of the sandbox."
        ),
    ] = None,
    shift_clock: Annotated[
        bool, typer.Option("--shift-clock", help="Run under a clock that `clock +26h` moves.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Stay attached; Ctrl-C then stops everything.")
    ] = False,
) -> None:
    """Start the stack and leave it running; attach if it runs already.

    Prints one line per part as it becomes ready, then the addresses, which are also in
    DIR/sandbox.json. Data is kept in DIR and used again by the next `up`. Exit code: 0 ready,
    78 something is missing on this machine (all of it listed, with fixes), 1 the start failed,
    130 after Ctrl-C (everything was stopped again in order).
    """
    key = os.environ.get("TAILRACE_STRIPE_API_KEY") if stripe else None
    asked = wanted.Wanted(workers, stripe, key, shift_clock)
    raise typer.Exit(start_everything(_paths(directory), asked, os.environ, _console(), follow))


@app.command()
def down(
    directory: Dir = None,
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Delete the directory with all its data afterwards.")
    ] = False,
) -> None:
    """Stop everything in order: workers, connector, webhook, Connect, Kafka, PostgreSQL, stand-in.

    Also ends a start that is under way, and what a killed supervisor left behind. A part that does
    not answer is woken, asked to end, and killed after a few seconds. Never touches a process it
    did not start. The data stays, unless --wipe is given.
    """
    from sandbox.down import down as stop_everything

    paths = _paths(directory)
    stop_everything(paths, _console())
    if wipe and control.wipe(paths):
        typer.echo(f"deleted {paths.dir}")


@app.command()
def status(
    directory: Dir = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the content of sandbox.json.")
    ] = False,
) -> None:
    """Show every part with its state, restarts and process id, and faults of the stand-in.

    Exit code: 0 it runs, 69 nothing runs, 1 parts run without a supervisor, because that was
    killed, 75 a start is under way.
    """
    value = control.state(_paths(directory))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(value)).decode())
        return
    for line in control.describe_state(value):
        typer.echo(line)
    if value["parts"].get("stripe", {}).get("state") == "ready":
        from sandbox import armed

        for line in armed.told(value["stripe_url"]):
            typer.echo(line)


@app.command("clock")
def shift(
    offset: Annotated[
        str | None,
        typer.Argument(help="+26h, +28h30m, -5m, +2d, or 0. Without it: show the offset."),
    ] = None,
    directory: Dir = None,
) -> None:
    """Show or set how far the stack's wall clock is ahead of the machine's.

    Needs a stack that was started with --shift-clock. The offset counts from the machine's clock,
    not from the last offset.
    """
    paths = _paths(directory)
    if offset is not None:
        control.shift_clock(paths, clock.parse_offset(offset))
    has = clock.read_offset(paths.clock)
    typer.echo("the machine's own clock" if has is None else f"{has:+d} s")


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="SQL, in one transaction.", metavar="STATEMENT")],
    directory: Dir = None,
) -> None:
    """Run SQL as the service does: its login may record usage and corrections, nothing else."""
    from sandbox import service_sql

    dsn = str(control.state(_paths(directory))["writer_dsn"])
    try:
        for line in service_sql.run(dsn, statement):
            typer.echo(line)
    except service_sql.StatementError as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None


@app.command()
def workers(
    number: Annotated[int, typer.Argument(min=0, max=12, help="How many workers to run.")],
    directory: Dir = None,
) -> None:
    """Scale the workers of a running stack and wait until all are ready."""
    control.set_workers(_paths(directory), number)
    typer.echo(f"{number} workers ready")


@app.command()
def stop(
    part: Annotated[
        str, typer.Argument(help="postgres, kafka, connect, stripe, webhook or worker-N.")
    ],
    directory: Dir = None,
) -> None:
    """Stop one part, as an outage, until `start`."""
    control.hold(_paths(directory), part)
    typer.echo(f"{part} stopped")


@app.command()
def start(
    part: Annotated[str, typer.Argument(help="The part that was stopped.")],
    directory: Dir = None,
) -> None:
    """Start a part again that was stopped with `stop`, and wait until it is ready."""
    control.release(_paths(directory), part)
    typer.echo(f"{part} ready")


@app.command("jars")
def fetch_jars(
    relock: Annotated[
        bool,
        typer.Option("--relock", help="For maintainers: write jars.lock anew from the POMs."),
    ] = False,
) -> None:
    """Fetch Kafka and Debezium through Maven, verify them and print where they are."""
    from sandbox import jars, machine

    if relock:
        with tempfile.TemporaryDirectory() as folder:
            jars.maven("mvn", os.environ)(Path(folder))
            jars.LOCK_FILE.write_text(jars.make_lock(Path(folder)), encoding="ascii")
    typer.echo(str(machine.jars(os.environ, typer.echo).root))


@app.command("install")
def install_into(
    postgres: Annotated[str, typer.Option(help="HOST:PORT of the database server.")],
    kafka: Annotated[str, typer.Option(help="HOST:PORT of the broker.")],
    connect: Annotated[str, typer.Option(help="Base address of Kafka Connect.")],
    postgres_of_connect: Annotated[
        str | None, typer.Option(help="HOST:PORT as Connect sees the server. Default: the same.")
    ] = None,
) -> None:
    """Install databases, schemas, topics, meters and connector into a stack that runs elsewhere.

    For the containers of docker-compose.yml. All logins get the password in SANDBOX_PASSWORD,
    which is the superuser's too.
    """
    from sandbox import install, secrets
    from sandbox.installation import Installation, address

    seen = address(postgres)
    installation = Installation(
        seen,
        address(postgres_of_connect) if postgres_of_connect else seen,
        secrets.same(os.environ.get("SANDBOX_PASSWORD", "")),
        kafka,
        connect,
    )
    install.run_all(installation, typer.echo)


@app.command(hidden=True)
def supervise(directory: Dir = None) -> None:
    """Be the supervisor; `up` starts this in the background."""
    paths = _paths(directory)
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)sZ %(levelname)s %(message)s", stream=sys.stdout
    )
    try:
        code = _supervise(paths)
    except Exception:
        log.exception("cannot go on")  # what `up` shows of it is one line
        raise
    raise typer.Exit(code)


def _supervise(paths: Paths) -> int:
    from sandbox import machine, ports, secrets, stack
    from sandbox.supervisor import Supervisor, holding

    with holding(paths):
        asked = wanted.read(paths.wanted_json) or wanted.Wanted()
        whole = stack.build(
            paths,
            asked,
            machine.machine(os.environ, log.info),
            ports.load_or_choose(paths.ports_json),
            secrets.load_or_make(paths.secrets_json),
            os.environ,
        )
        return Supervisor(whole).run()


def run(arguments: Sequence[str]) -> int:
    """One command line → its exit code. Blocks for as long as the command runs."""
    return fenced(app, "tailrace sandbox", arguments, explained)
