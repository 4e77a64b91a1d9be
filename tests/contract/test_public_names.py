"""What an installed wheel brings: exactly three names, each owned by this distribution alone."""

import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
NAMES: Final = {"streams", "connectors", "schemas"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_top_level_is_three_names(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == NAMES


def test_each_name_has_one_owner(
    wheel: zipfile.ZipFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel.extractall(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    owners = packages_distributions()
    assert {name: set(owners[name]) for name in NAMES} == {name: {"tailrace"} for name in NAMES}


def test_contracts_and_types_travel_with_it(wheel: zipfile.ZipFile) -> None:
    inside = set(wheel.namelist())
    contracts = {
        str(path.relative_to(ROOT))
        for name in NAMES
        for kind in ("*.sql", "*.json", "*.html", "*.js", "*.css", "*.svg", "*.txt", "py.typed")
        for path in (ROOT / name).rglob(kind)
    }
    assert contracts
    assert not contracts - inside
