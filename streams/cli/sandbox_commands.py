"""`tailrace sandbox …` and `tailrace demo`: handed on to the checkout's own `sandbox` package."""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec

import typer

from streams.cli.errors import ConfigurationError

Execute = Callable[[str, list[str]], object]

_AS_THEY_ARE = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def hand_on(module: str, arguments: list[str], execute: Execute = os.execv) -> None:
    """Becomes `python -m MODULE …`: signals and the exit code are that program's own.

    Raises:
        ConfigurationError: the package is not there; an installed wheel does not hold it.
    """
    if find_spec(module.partition(".")[0]) is None or find_spec(module) is None:
        raise ConfigurationError(
            f"{module}: not installed; the sandbox comes with a checkout of the repository, not "
            "with the package",
            fix="clone the repository, `make sync`, and run `.venv/bin/tailrace` there",
        )
    execute(sys.executable, [sys.executable, "-m", module, *arguments])


sandbox_app = typer.Typer(rich_markup_mode=None, add_completion=False)
demo_app = typer.Typer(rich_markup_mode=None, add_completion=False)


@sandbox_app.command(context_settings=_AS_THEY_ARE)
def sandbox(ctx: typer.Context) -> None:
    """The stack on this computer: up, down, status, clock."""
    hand_on("sandbox", ctx.args)


@demo_app.command(context_settings=_AS_THEY_ARE)
def demo(ctx: typer.Context) -> None:
    """The whole story on a real stack, proved at the end."""
    hand_on("sandbox.demo", ctx.args)


APPS = {"sandbox": sandbox_app, "demo": demo_app}
