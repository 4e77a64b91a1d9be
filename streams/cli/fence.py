"""The one fence for errors: a command group and its arguments → an exit code, never a traceback.

What goes wrong leaves here as what, why, what to type next, and an exit code; a traceback only with
--debug.
"""

import sys
from collections.abc import Callable, Sequence
from traceback import format_exception
from types import TracebackType
from typing import Any

import typer

from streams.cli import terminal
from streams.cli.boundary import Shown, explain
from streams.cli.errors import INTERRUPTED
from streams.masking import masked

Explain = Callable[[BaseException], Shown]


def fenced(
    app: Callable[..., Any], name: str, arguments: Sequence[str], explained: Explain = explain
) -> int:
    """Runs a command line; blocks for as long as the command runs.

    Args:
        app: the commands.
        name: what people type for it; it stands in usage lines.
        arguments: without the program's own name.
        explained: an exception → what is shown of it, and the exit code.

    Raises:
        Exception: any, with --debug.
    """
    debug, kept = _without_debug(arguments)
    try:
        outcome = app(args=kept, prog_name=name, standalone_mode=False, obj=debug)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED  # said by whoever ends the process, as the last word
    except typer.TyperException as error:
        show = getattr(error, "show", None)
        if callable(show):
            show()
        return error.exit_code
    except Exception as error:  # the last fence: no traceback reaches a user
        if debug:
            sys.excepthook = _masked_traceback
            raise
        shown = explained(error)
        for line in shown.lines():
            terminal.say(masked(line))
        return shown.exit_code
    return outcome if isinstance(outcome, int) else 0


def _masked_traceback(
    _kind: type[BaseException], error: BaseException, _trace: TracebackType | None
) -> None:
    sys.stderr.write(masked("".join(format_exception(error))))


def _without_debug(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """`--debug` may stand anywhere before a `--`."""
    arguments = list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument != "--debug"]
    return len(kept) < end, kept + arguments[end:]
