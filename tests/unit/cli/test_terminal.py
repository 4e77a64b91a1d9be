"""Data on stdout, talk on stderr, plain where nobody looks."""

from __future__ import annotations

import io

import msgspec
import pytest
import typer

from streams.cli import terminal
from streams.cli.errors import UsageProblemError
from streams.cli.fence import fenced


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    lines = terminal.table(("name", "count", ""), [("a", 5, "x"), ("long name", 1200, None)])
    assert lines == ["name       count", "a              5  x", "long name   1200"]


def test_a_table_without_rows_is_its_head() -> None:
    assert terminal.table(("a", "b"), []) == ["a  b"]


@pytest.mark.parametrize("sign", ["\x1b", "\x9b", "\r", "\x00", "\x7f", "\u202e", "\u2066"])
def test_what_anybody_wrote_steers_no_terminal(
    sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"acme{sign}[2J·é\tx"
    terminal.say(text)
    terminal.data(text)
    terminal.emit_json({"why": text})
    seen = capsys.readouterr()
    assert sign not in seen.err + seen.out
    shown = f"acme\\u{ord(sign):04x}[2J·é\tx\n"
    assert seen.err == shown
    line, _, document = seen.out.partition("\n")
    assert f"{line}\n" == shown
    assert msgspec.json.decode(document) == {"why": text}, "the document still says it"


def test_what_an_error_quotes_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(add_completion=False)

    @app.command()
    def fail() -> None:
        raise UsageProblemError("TENANT: \x1b[2J is unknown", fix="`\x9bm`")

    assert fenced(app, "test", []) == 2
    assert capsys.readouterr().err == ("error: TENANT: \\u001b[2J is unknown\n  next: `\\u009bm`\n")


def test_a_reason_of_several_lines_is_no_row_of_its_own() -> None:
    (_, line) = terminal.table(("why", "by"), [("lost\nfound\there", "ann")])
    assert line == "lost\\u000afound\\u0009here  ann"


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
