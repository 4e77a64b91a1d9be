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


def from_checkout(module: str, load: Load = import_module, what: str = "the sandbox comes") -> Any:
    """A module that a checkout of the repository has and an installed wheel has not.

    Args:
        module: its full name.
        load: imports it.
        what: what comes with a checkout, for the message.

    Raises:
        ConfigurationError: it is not there.
    """
    if not _is_there(module):
        raise ConfigurationError(
            f"{module}: not installed; {what} with a checkout of the repository, not "
            "with the package",
            fix="clone the repository, `make sync`, and run `.venv/bin/tailrace` there",
        )
    with Importing():
        return load(module)


def _is_there(module: str) -> bool:
    """A package of that name may be anybody's: its parts need not be there."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def hand_on(module: str, arguments: list[str], load: Load = import_module) -> int:
    """Runs another command line in this process; the exit code is that one's own.

    Raises:
        ConfigurationError: the package is not there; an installed wheel does not hold it.
    """
    return int(from_checkout(module, load).run(arguments))


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
