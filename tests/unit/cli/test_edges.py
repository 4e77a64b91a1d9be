"""The edges of time under somebody's own meters file."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from streams.cli.main import run
from streams.core import billing

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "schemas/cli/meters_edges.json"


@pytest.fixture
def meters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A meters file, and nothing else: no sandbox, no ledger."""
    monkeypatch.chdir(tmp_path)
    for name in ("TAILRACE_DIR", "TAILRACE_STACK", "TAILRACE_LEDGER_DSN"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "meters.toml"
    file.write_text(
        "[meters.calls]\nwindow = 'day'\n[meters.jobs]\npublish = 'event'\nskew_max = '1h'\n"
        "[meters.young]\neffective_from = 2030-01-01T00:00:00Z\n"
    )
    return str(file)


def test_each_edge_is_printed_with_its_verdict_and_window(
    meters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["meters", "check", meters, "--edges"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("edges, 0 not as expected")
    (leap,) = [line for line in lines if line.startswith("leap day") and " calls " in line]
    assert "2028-02-29T00:00:00.000000Z" in leap
    (anchor,) = [line for line in lines if line.startswith("an anchor at 14:37:21 ")]
    assert "2026-12-15T15:22:21.000000Z" in anchor


def test_the_document_keeps_its_schema(meters: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["meters", "check", meters, "--edges", "--json"]) == 0
    document: dict[str, Any] = msgspec.json.decode(capsys.readouterr().out)
    Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes())).validate(document)
    assert {one["metric"] for one in document["edges"]} == {None, "calls", "jobs", "young"}


def test_an_edge_that_is_not_as_expected_is_a_finding(
    meters: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: months counted from one to the next forget the 31st."""
    boundary = billing._boundary_us

    def shorter(anchor_us: int, months: int) -> int:
        for _ in range(abs(months)):
            anchor_us = boundary(anchor_us, 1 if months > 0 else -1)
        return anchor_us

    monkeypatch.setattr(billing, "_boundary_us", shorter)
    assert run(["meters", "check", meters, "--edges"]) == 1
    out = capsys.readouterr().out
    assert "an anchor on the 31st is on the 31st again" in out
    assert "EXPECTED in its period until 2026-05-31T00:00:00.000000Z" in out


def test_a_wrong_file_names_its_problems_instead(
    meters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(meters).write_text("[meters.a]\nscale = 99\n")
    assert run(["meters", "check", meters, "--edges"]) == 1
    assert "meters.a.scale: must be a whole number" in capsys.readouterr().out
