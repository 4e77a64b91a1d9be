"""`tailrace status --watch`: the screen again and again, until Ctrl-C.

On a terminal it is redrawn in place; elsewhere a line is written whenever the verdict changes, so
that a log of it can be read.
"""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

from streams.cli import terminal
from streams.cli.boundary import explain
from streams.cli.errors import UNAVAILABLE

Screen = list[str]
"""Lines; the first one is the verdict."""
EVERY_S: Final = 2.0


def readings(read: Callable[[], Screen]) -> Iterator[Screen]:
    """Screens without end. A ledger that is away for a while is one of the things to be seen.

    Raises:
        Exception: anything but a service that does not answer.
    """
    while True:
        try:
            yield read()
        except Exception as error:  # what it means is known by its class alone
            shown = explain(error)
            if shown.exit_code != UNAVAILABLE:
                raise
            yield ["money at risk: nobody knows", *shown.lines()]


def watch(read: Callable[[], Screen], pause: Callable[[], None]) -> None:
    """Shows screens until `pause` raises, which Ctrl-C does.

    Args:
        read: gives the screen now.
        pause: waits for the next one.
    """
    if sys.stdout.isatty():
        _redraw(read, pause)
    else:
        _write(read, pause)


def _redraw(read: Callable[[], Screen], pause: Callable[[], None]) -> None:
    # Loaded for this alone.
    live, text = import_module("rich.live"), import_module("rich.text")
    with live.Live(screen=True, auto_refresh=False) as shown:
        for screen in readings(read):
            lines = "\n".join(terminal.plain(line) for line in screen)
            shown.update(text.Text(lines, no_wrap=True), refresh=True)
            pause()


def _write(read: Callable[[], Screen], pause: Callable[[], None]) -> None:
    before = ""
    for screen in readings(read):
        if screen[0] != before:
            terminal.data(screen[0])
            before = screen[0]
        pause()
