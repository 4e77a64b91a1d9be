"""`tailrace drill`: faults on the real stack, and the open questions to a real Stripe."""

import asyncio
from dataclasses import replace
from importlib.util import find_spec
from os import environ
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from streams.adapters.clock import SystemClock
from streams.cli import facts_show
from streams.cli.errors import FINDING, FINE, ConfigurationError
from streams.cli.options import Json, duration_option, new_app
from streams.cli.sandbox_commands import from_checkout
from streams.cli.stripe_facts import Answered, Asking, check_key, earlier
from streams.core.instant import SECOND_US
from streams.settings import load, read_file
from streams.stripe_access import command_settings

PAUSE_S: Final = 2.0
"""Between the first two looks at Stripe's sums or reports."""

app = new_app(
    "Drills: the real stack is broken on purpose, and an oracle compares what the service recorded "
    "with registry, ledger and Stripe; and what only a real Stripe can answer."
)


@app.command("list")
def list_drills(as_json: Json = False) -> None:
    """Show every drill, and what keeps this machine from running them.

    Drills of size CI run on every change, `long` ones only in the full run, and those that run
    `alone` only by their name.
    """
    raise typer.Exit(_drills().show(as_json=as_json))


@app.command()
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="As `list` names them, or how several begin.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All of them, but for those that run alone.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the reports go. Default: build/drills in the checkout.",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=1, help="Length of the soak. Default: 30.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Seed of the soak. Default: by chance.", show_default=False
        ),
    ] = None,
    where_possible: Annotated[
        bool,
        typer.Option("--where-possible", help="A drill that cannot run here is no failure."),
    ] = False,
) -> None:
    """Run drills on a stack of their own, which is stopped again at the end.

    Each leaves DIR/NAME.md: what was done, what was pending before, at worst and after, what the
    oracle found, seeds and times. DIR/summary.json has a line for each: its figures, and in
    `not_run` why it could not be made here; such a one is not ok. Exit code: 0 all are ok, 1 one is
    not, or could not be made and --where-possible was not given, 69 none of them can run here, 78
    the machine cannot run a stack.

    One that fails leaves its stack, too, stopped, with data and logs: its report says where, and
    how to start it again.
    """
    drills = _drills()
    length = drills.Length(minutes, seed)
    code = drills.run(
        names or [],
        everything=everything,
        out=out,
        where_possible=where_possible,
        length=length,
    )
    raise typer.Exit(code)


@app.command("stripe-facts")
def stripe_facts(
    api_base: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask there and nowhere else. Default: TAILRACE_STRIPE_API_BASE.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the answers are kept between runs.")
    ] = Path("build/stripe-facts.json"),
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="Longest wait for a sum or a report.")
    ] = "10m",
    as_json: Json = False,
) -> None:
    """Ask a real Stripe sandbox what its documentation leaves open.

    Needs a test key, sk_test_… or rk_test_…, as TAILRACE_STRIPE_API_KEY; without one it lists the
    questions. It records usage in that account, for customers and meters of its own, which stay.
    What takes a day is asked by running it again later. Exit code: 0 every answer agrees with what
    is assumed, 1 one does not, 69 Stripe cannot be reached, 78 the key is not a test key.
    """
    settings = load(environ, read_file(Path.cwd()))
    if not settings.stripe_api_key:
        facts_show.unasked(settings.stripe_api_base, as_json=as_json)
        return
    check_key(settings.stripe_api_key)
    reach = command_settings(settings)
    reach = reach if api_base is None else replace(reach, api_base=api_base.rstrip("/"))
    asking = Asking(reach, SystemClock(), earlier(out, reach.api_base))
    longest_us = duration_option("--wait", wait, "10m") or 0

    def heard(one: Answered) -> None:
        facts_show.keep(out, asking.facts)
        if not as_json:
            facts_show.answer(one)

    asyncio.run(asking.run(longest_us / SECOND_US, PAUSE_S, heard))
    facts_show.whole(out, asking.facts, as_json=as_json)
    raise typer.Exit(FINDING if asking.facts.contradictions else FINE)


def _drills() -> Any:
    """The drills of this checkout.

    Raises:
        ConfigurationError: there is none, or its tools are not installed.
    """
    commands = "tests.drills.commands"
    missing = [name for name in ("pytest", "psutil") if find_spec(name) is None]
    if missing and find_spec("tests") is not None:
        raise ConfigurationError(
            f"{', '.join(missing)}: not installed; a drill is a test",
            fix="`make sync`, then `.venv/bin/tailrace`, in the checkout",
        )
    return from_checkout(commands, what="the drills come")


APPS = {"drill": app}
