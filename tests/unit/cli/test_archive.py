"""Where an archive is: what is put there is whole and can be told from anything else."""

from hashlib import sha256
from pathlib import Path

import pytest

from streams.cli.archive import ARCHIVED
from streams.cli.archive_store import open_store
from streams.cli.errors import UnavailableError, UsageProblemError


@pytest.mark.parametrize("where", ["folder", "mock://bucket/usage"])
def test_what_is_put_is_there_whole_and_reads_back(tmp_path: Path, where: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"usage" * 1_000_000)
    store = open_store(where if "://" in where else str(tmp_path / where))
    if "://" in where:  # an object store has no folders; its stand-in has
        store.files.create_dir(f"{store.base}/archive/day=2026-11-29", recursive=True)
    path = "archive/day=2026-11-29/archive.parquet"
    assert store.digest_of(path) is None
    store.put(file, path)
    assert store.digest_of(path) == sha256(file.read_bytes()).hexdigest()
    file.write_bytes(b"other")
    store.put(file, path)
    assert store.digest_of(path) == sha256(b"other").hexdigest()
    if "://" not in where:
        assert [p.name for p in (tmp_path / where).rglob("*") if p.is_file()] == ["archive.parquet"]


def test_a_place_that_cannot_be_written_or_does_not_exist_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="cannot be written"):
        open_store(str(tmp_path / "file")).put(tmp_path / "file", "day/x")
    with pytest.raises(UsageProblemError, match="--out: ftp://nobody"):
        open_store("ftp://nobody/there")


def test_attributes_are_not_archived() -> None:
    assert "attributes" not in [name for name, _ in ARCHIVED.columns]
