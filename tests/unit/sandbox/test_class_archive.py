from pathlib import Path

import pytest

from sandbox.class_archive import ClassArchive


def java(folder: Path, code: int) -> Path:
    program = folder / f"java-{code}"
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    return program


def archive(folder: Path, code: int = 0, main: str = "kafka.Kafka") -> ClassArchive:
    jars = folder / "jars" / "kafka"
    jars.mkdir(parents=True, exist_ok=True)
    (folder / "jars" / "classes").mkdir(exist_ok=True)
    return ClassArchive(java(folder, code), jars, ("-XX:+UseSerialGC",), main)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    file = tmp_path / "fresh.jsa"
    file.write_bytes(b"classes")
    return file


def test_without_an_archive_a_program_starts_plainly(tmp_path: Path) -> None:
    found = archive(tmp_path)
    assert found.wanted
    assert found.options == ()


def test_what_a_jvm_accepts_is_kept_and_used(tmp_path: Path, fresh: Path) -> None:
    found = archive(tmp_path)
    assert found.keep(fresh)
    assert not found.wanted
    assert found.options == ("-Xshare:auto", f"-XX:SharedArchiveFile={found.kept}")
    assert found.kept.read_bytes() == b"classes"


def test_what_a_jvm_refuses_is_not_kept_and_not_tried_again(tmp_path: Path, fresh: Path) -> None:
    found = archive(tmp_path, code=1)
    assert not found.keep(fresh)
    assert not found.wanted
    assert found.options == ()


def test_a_program_that_wrote_nothing_is_not_tried_again(tmp_path: Path) -> None:
    found = archive(tmp_path)
    assert not found.keep(tmp_path / "none.jsa")
    assert not found.wanted
    assert found.options == ()


def test_another_java_or_program_has_an_archive_of_its_own(tmp_path: Path, fresh: Path) -> None:
    found = archive(tmp_path)
    assert found.keep(fresh)
    assert archive(tmp_path, main="org.apache.kafka.connect.cli.ConnectDistributed").wanted
    assert archive(tmp_path, code=3).wanted
