"""Data on stdout, talk on stderr, plain where nobody looks."""

from __future__ import annotations

import io

import pytest

from streams.cli import terminal
from streams.cli.errors import UsageProblemError


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    lines = terminal.table(("name", "count", ""), [("a", 5, "x"), ("long name", 1200, None)])
    assert lines == ["name       count", "a              5  x", "long name   1200"]


def test_a_table_without_rows_is_its_head() -> None:
    assert terminal.table(("a", "b"), []) == ["a  b"]


def test_data_and_talk_go_their_own_ways(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say("talk")
    terminal.data("data")
    terminal.emit_json({"b": 1, "a": "·"})
    seen = capsys.readouterr()
    assert seen.err == "talk\n"
    assert seen.out == 'data\n{\n  "b": 1,\n  "a": "·"\n}\n'


def test_progress_is_rewritten_on_a_terminal_and_taken_away() -> None:
    screen = Screen()
    progress = terminal.Progress(screen, {})
    progress.show("5 of 12")
    progress.show("12")
    progress.clear()
    assert screen.getvalue() == "\r5 of 12\r12     \r  \r"


@pytest.mark.parametrize(
    ("stream", "settings"), [(io.StringIO(), {}), (Screen(), {"NO_COLOR": ""})]
)
def test_progress_is_silent_without_a_terminal_or_with_no_color(
    stream: io.StringIO, settings: dict[str, str]
) -> None:
    progress = terminal.Progress(stream, settings)
    progress.show("5 of 12")
    progress.clear()
    assert stream.getvalue() == ""


def test_a_change_is_confirmed_by_yes_or_by_a_person_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.confirm("Sure?", yes=True, command="do it")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UsageProblemError, match="Nobody is at a terminal") as caught:
        terminal.confirm("Sure?", yes=False, command="do it")
    assert "`do it --yes`" in caught.value.fix


@pytest.mark.parametrize(("typed", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked(
    typed: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Screen(typed))
    if goes_on:
        terminal.confirm("Sure?", yes=False, command="do it")
    else:
        with pytest.raises(UsageProblemError, match="nothing was changed"):
            terminal.confirm("Sure?", yes=False, command="do it")
    assert "Sure?" in capsys.readouterr().err
