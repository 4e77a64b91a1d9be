"""What a contender needs and cannot have is said in a line, and stops nobody else."""

from pathlib import Path

import pytest

from sandbox import jars, kafka
from tests.bench import installed


def quiet(_text: str) -> None:
    pass


def test_without_a_java_compiler_the_reason_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "bin" / "java"
    runtime.parent.mkdir()
    runtime.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n", encoding="utf-8")
    runtime.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(installed.MissingError, match="a JRE is not enough"):
        installed.streams(quiet)


def test_an_environment_that_cannot_be_installed_says_why_and_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("no requirement at all\n", encoding="utf-8")
    monkeypatch.setattr(installed, "LOCK", lock)
    monkeypatch.setattr(installed, "FOLDER", tmp_path)
    with pytest.raises(installed.MissingError, match="Invalid requirement"):
        installed.python(quiet)
    assert not list(tmp_path.glob("venv-*/complete"))


def test_kafka_streams_is_of_the_brokers_version_and_what_maven_brings_is_locked() -> None:
    lock = (installed.STREAMS / "jars.lock").read_text(encoding="ascii")
    pom = (installed.STREAMS / "pom.xml").read_text(encoding="utf-8")
    names = jars.parse_lock(lock)
    for library in ("kafka-streams", "kafka-clients"):
        assert f"streams/{library}-{kafka.VERSION}.jar" in names
    assert f"<artifactId>kafka-streams</artifactId><version>{kafka.VERSION}<" in pom
    of_the_sandbox = jars.parse_lock(jars.LOCK_FILE.read_text(encoding="ascii"))
    same = {
        name: names[f"streams/{Path(name).name}"]
        for name in of_the_sandbox
        if f"streams/{Path(name).name}" in names
    }
    assert len(same) > 5
    assert all(of_the_sandbox[name] == digest for name, digest in same.items())
