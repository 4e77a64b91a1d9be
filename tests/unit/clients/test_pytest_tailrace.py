"""The plugin as a distribution: found by pytest, needing nothing of ours, exact about its input."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from pytest_tailrace import UsageRecorded

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "clients" / "pytest-tailrace"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, as an installer would leave it."""
    folder = tmp_path_factory.mktemp("plugin")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_pytest_finds_it_by_itself(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--fixtures", "-p", "no:schemathesis"]
    found = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    for name in ("usage_recorded", "usage_not_recorded"):
        assert f"{name} -- " in found.stdout, found.stdout[-2_000:] + found.stderr
    assert "the test's own transaction" in found.stdout


def test_the_wheel_is_one_module(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names - {"__pycache__"} == {"pytest_tailrace.py"}


def test_it_needs_nothing_but_pytest() -> None:
    tree = ast.parse((FOLDER / "pytest_tailrace.py").read_text("utf-8"))
    wanted = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert wanted - set(sys.stdlib_module_names) == {"pytest"}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"quantity": 0.1}, "float"),
        ({"occurred_at": datetime(2026, 11, 29)}, "time zone"),  # noqa: DTZ001 - refused for it
    ],
)
def test_what_is_not_exact_is_refused(given: dict[str, Any], word: str) -> None:
    with pytest.raises(TypeError, match=word):
        UsageRecorded()(object(), "acme", "k", **given)


def test_an_asynchronous_connection_is_refused_in_words() -> None:
    conn = psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)
    with pytest.raises(TypeError, match="asynchronous"):
        UsageRecorded()(conn, "acme", "k")
