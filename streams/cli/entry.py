"""The console script: arguments → exit code, with Ctrl-C guarded from the first import on.

Loading libraries takes a good part of a second. An interrupt raised there ends as a traceback, or
is printed and forgotten where an import hook is running. So as long as there is nothing to take
care of, Ctrl-C leaves at once, with one line and no exception. This module imports next to
nothing, because what it imports is not guarded.
"""

import os
import signal
import sys
from importlib import import_module

INTERRUPTED = 130
STOPPED = "stopped; nothing is half done, repeat it any time"


def leave(*_: object) -> None:
    """Ends the process, as a signal handler: nothing is unwound, so nothing else is printed."""
    say_stopped()
    os._exit(INTERRUPTED)


def say_stopped() -> None:
    """The one line; on a terminal below the `^C` that stands there."""
    below = "\n" if os.isatty(2) else ""
    os.write(2, f"{below}{STOPPED}\n".encode())


class Importing:
    """While libraries are loaded, Ctrl-C leaves; afterwards it is what it was before.

    Only the usual behaviour is replaced: a shell's background job ignores Ctrl-C, and goes on to.
    """

    def __init__(self) -> None:
        """Replaces nothing yet."""
        self._before: object = None

    def __enter__(self) -> None:
        """Begins; does nothing in a thread other than the first, where no handler may be set."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                self._before = signal.signal(signal.SIGINT, leave)
            except ValueError:
                self._before = None

    def __exit__(self, *_: object) -> None:
        """Ends."""
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def enter(module: str) -> None:
    """Loads `module`, gives its `run` the arguments, and ends with the code that it returns."""
    try:
        with Importing():
            run = import_module(module).run
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    # No fence is left: from here on an interrupt would end as a traceback of the interpreter.
    Importing().__enter__()
    if code == INTERRUPTED:
        say_stopped()
    sys.exit(code)


def main() -> None:
    """The command `tailrace`."""
    enter("streams.cli.main")
