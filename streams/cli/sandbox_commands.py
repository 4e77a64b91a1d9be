"""`tailrace sandbox`, `demo`, `stripe-sandbox`: handed on to the checkout's `sandbox` package."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer

from streams.cli.entry import Importing
from streams.cli.errors import ConfigurationError

Load = Callable[[str], Any]

_AS_THEY_ARE = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def hand_on(module: str, arguments: list[str], load: Load = import_module) -> int:
    """Runs another command line in this process; the exit code is that one's own.

    Raises:
        ConfigurationError: the package is not there; an installed wheel does not hold it.
    """
    if find_spec(module.partition(".")[0]) is None or find_spec(module) is None:
        raise ConfigurationError(
            f"{module}: not installed; the sandbox comes with a checkout of the repository, not "
            "with the package",
            fix="clone the repository, `make sync`, and run `.venv/bin/tailrace` there",
        )
    with Importing():
        run = load(module).run
    return int(run(arguments))


sandbox_app = typer.Typer(rich_markup_mode=None, add_completion=False)
demo_app = typer.Typer(rich_markup_mode=None, add_completion=False)
stripe_app = typer.Typer(rich_markup_mode=None, add_completion=False)


@sandbox_app.command(context_settings=_AS_THEY_ARE)
def sandbox(ctx: typer.Context) -> None:
    """The stack on this computer: up, down, status, clock."""
    raise typer.Exit(hand_on("sandbox.commands", _arguments(ctx)))


@demo_app.command(context_settings=_AS_THEY_ARE)
def demo(ctx: typer.Context) -> None:
    """The whole story on a real stack, proved at the end."""
    raise typer.Exit(hand_on("sandbox.demo.story", _arguments(ctx)))


@stripe_app.command(context_settings=_AS_THEY_ARE)
def stripe_sandbox(ctx: typer.Context) -> None:
    """A stateful stand-in for Stripe's meters on this computer, until Ctrl-C."""
    raise typer.Exit(hand_on("sandbox.stripe_sandbox.commands", _arguments(ctx)))


def _arguments(ctx: typer.Context) -> list[str]:
    """As they were typed: `--debug` was taken out of them by the fence, which left word of it."""
    return ["--debug", *ctx.args] if ctx.obj else ctx.args


APPS = {"sandbox": sandbox_app, "demo": demo_app, "stripe-sandbox": stripe_app}
