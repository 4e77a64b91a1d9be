from pathlib import Path

import pytest

from sandbox.java import find_java, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("Error: could not open libjvm.so", 0),
        ("", 0),
    ],
)
def test_the_feature_version_is_read_from_what_java_prints(text: str, version: int) -> None:
    assert parse_version(text) == version


def java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    home, path = java(tmp_path / "home", "21.0.1"), java(tmp_path / "path", "17.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{path.parent}:/usr/bin:/bin"}
    found, too_old = find_java(environ)
    assert found is not None
    assert (found.program, found.version, too_old) == (home, 21, [])


def test_an_old_java_home_is_passed_over_and_named(tmp_path: Path) -> None:
    home, path = java(tmp_path / "home", "11.0.2"), java(tmp_path / "path", "17.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{path.parent}:/usr/bin:/bin"}
    found, too_old = find_java(environ)
    assert found is not None
    assert found.program == path
    assert [(each.program, each.version) for each in too_old] == [(home, 11)]


def test_no_java_is_no_error(tmp_path: Path) -> None:
    assert find_java({"PATH": str(tmp_path)}) == (None, [])


def test_a_java_that_cannot_run_is_too_old(tmp_path: Path) -> None:
    program = java(tmp_path / "home", "17")
    program.write_text("#!/nonexistent/interpreter\n")
    found, too_old = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""})
    assert found is None
    assert [each.version for each in too_old] == [0]
