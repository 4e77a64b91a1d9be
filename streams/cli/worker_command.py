"""`tailrace worker`: settings → one worker process, until it is told to stop."""

import typer

from streams.cli.options import Dir, Live
from streams.cli.stack import resolve
from streams.settings import REQUIRED_BY_WORKER
from streams.worker import run

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def worker(directory: Dir = None, live: Live = False) -> None:
    """Run one worker: admission, facts, publishing. SIGTERM stops it in order.

    Ends with 78, by name, when usage could be on time for a meter and too late for the invoice of a
    mapped customer; `tailrace meters check` says the same before.
    """
    run(resolve(directory, live=live).need(*REQUIRED_BY_WORKER))


APPS = {"worker": app}
