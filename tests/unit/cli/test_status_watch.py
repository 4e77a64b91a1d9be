"""`tailrace status --watch`: redrawn on a terminal, a line a change elsewhere, Ctrl-C ends it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest

from streams.cli.status_watch import watch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def script(*steps: list[str] | Exception) -> tuple[Callable[[], list[str]], Callable[[], None]]:
    """Readings in turn; the pause after the last one is interrupted by Ctrl-C."""
    left: Iterator[list[str] | Exception] = iter(steps)
    pauses = iter(range(1, len(steps)))

    def read() -> list[str]:
        step = next(left)
        if isinstance(step, Exception):
            raise step
        return step

    def pause() -> None:
        if next(pauses, None) is None:
            raise KeyboardInterrupt

    return read, pause


def test_away_from_a_terminal_a_line_is_written_whenever_the_verdict_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt):
        watch(*script(["no", "figures"], ["no", "others"], ["YES", "figures"], ["no", "figures"]))
    assert capsys.readouterr().out == "no\nYES\nno\n"


def test_a_ledger_that_is_away_is_seen_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        watch(*script(["no"], psycopg.OperationalError("gone"), ["no"]))
    assert capsys.readouterr().out == "no\nmoney at risk: nobody knows\nno\n"


def test_a_defect_is_not_watched() -> None:
    with pytest.raises(ValueError, match="broken"):
        watch(*script(ValueError("broken"), ["no"]))


def test_on_a_terminal_the_screen_is_redrawn_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with pytest.raises(KeyboardInterrupt):
        watch(*script(["money at risk: no"], ["money at risk: YES"]))
    written = shown.getvalue()
    assert written.index("risk: no") < written.index("risk: YES")
    assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1
    assert "\x1b[?25h" in written[written.index("\x1b[?1049l") - 40 :]
