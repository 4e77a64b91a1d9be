"""`tailrace config check|show`: the settings in force, every problem at once."""

from typing import Annotated

import typer

from streams.cli import terminal
from streams.cli.options import Dir, Json, new_app
from streams.cli.stack import resolve
from streams.settings import REQUIRED_BY_WORKER, describe

app = new_app("Settings: what is in force, and what is wrong with it.")


@app.command()
def show(directory: Dir = None, as_json: Json = False) -> None:
    """Every setting with its value and meaning; secrets are masked."""
    stack = resolve(directory)
    rows = describe(stack.settings)
    if as_json:
        terminal.emit_json(
            {
                "sandbox": str(stack.directory) if stack.directory else None,
                "overridden": list(stack.overridden),
                "settings": [
                    {"name": name, "value": value, "meaning": meaning}
                    for name, value, meaning in rows
                ],
            }
        )
        return
    terminal.say(f"sandbox: {stack.directory or 'none, settings alone'}")
    terminal.show_table(("setting", "value", "meaning"), rows)


@app.command()
def check(
    directory: Dir = None,
    worker: Annotated[
        bool, typer.Option("--worker", help="Also ask for what only a worker needs.")
    ] = False,
) -> None:
    """Says whether the settings are usable; exit 78 with every problem otherwise."""
    stack = resolve(directory)
    needed = [name for name in REQUIRED_BY_WORKER if worker or name != "data_dir"]
    stack.need(*needed)
    terminal.data(f"ok: {len(describe(stack.settings))} settings")


APPS = {"config": app}
