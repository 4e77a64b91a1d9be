"""Data on stdout, talk on stderr, and no decoration where nobody looks.

A command builds one value; `emit` prints it as JSON or hands it to the command's own text.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from os import environ
from typing import IO, Any, Final

import msgspec
import typer

from streams.cli.errors import PIPE_CLOSED, TryAgainError, UsageProblemError
from streams.core.instant import age_text

_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BREAKS: Final = re.compile(r"[\t\n]")


def plain(text: str) -> str:
    """The text without what steers a terminal or turns its direction.

    Names, reasons and answers come from anybody. What is replaced is written as JSON writes it, so
    that a document stays one and says the same.
    """
    return _UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def say(text: str) -> None:
    """Talk: progress, remarks, plans. On stderr, so that a pipe gets data only."""
    typer.echo(plain(text), err=True)


def data(text: str = "") -> None:
    """One line of what the command is asked for.

    Raises:
        typer.Exit: nobody reads it any more, as behind `| head -1`.
        TryAgainError: it cannot be written, as on a full disk.
    """
    try:
        typer.echo(plain(text))
    except BrokenPipeError:
        _let_go()
        raise typer.Exit(PIPE_CLOSED) from None
    except OSError as error:
        _let_go()
        raise TryAgainError(
            f"the output cannot be written: {error.strerror}",
            fix="what was done stands: repeat the command with room for its output, it says so",
        ) from None


def _let_go() -> None:
    """Else the interpreter tries once more at its end, and complains in words of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def emit_json(document: Mapping[str, Any]) -> None:
    """One JSON document, two spaces deep, keys in their order of writing."""
    data(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Aligned columns, numbers to the right; never cut to a terminal's width."""
    texts = [["" if cell is None else _one_line(str(cell)) for cell in row] for row in rows]
    widths = [
        max(len(line[place]) for line in [list(heads), *texts]) for place in range(len(heads))
    ]
    numeric = [
        bool(texts) and all(_is_number(row[place]) for row in texts) for place in range(len(heads))
    ]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return [line(heads), *(line(row) for row in texts)]


def _one_line(text: str) -> str:
    """A line of a reason's own would pass for another row."""
    return _BREAKS.sub(_escaped, plain(text))


def show_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The same as data."""
    for line in table(heads, rows):
        data(line)


def _is_number(text: str) -> bool:
    return text == "" or text.removeprefix("-").replace(".", "", 1).isdigit()


def age(seconds: float | None) -> str:
    """Short text of an age, `-` for none."""
    return "-" if seconds is None else age_text(seconds)


class Progress:
    """One line that is rewritten on a terminal, and nothing elsewhere or with NO_COLOR."""

    def __init__(
        self, stream: IO[str] | None = None, settings: Mapping[str, str] = environ
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty() and "NO_COLOR" not in settings
        self._width = 0

    def show(self, text: str) -> None:
        """Replaces the line."""
        if self._shown:
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)

    def clear(self) -> None:
        """Takes the line away."""
        if self._shown and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def confirm(question: str, *, yes: bool, command: str) -> None:
    """Goes on only with --yes or a typed yes; the plan has been printed before.

    Raises:
        UsageProblemError: nobody is there to ask, or the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblemError(
            f"{question} Nobody is at a terminal to answer, so nothing was changed",
            fix=f"read the plan above, then `{command} --yes`",
        )
    if not typer.confirm(question, default=False, err=True):
        raise UsageProblemError("nothing was changed", fix=f"`{command} --yes` when it is meant")
