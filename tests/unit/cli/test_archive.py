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


@pytest.mark.parametrize(
    "out",
    ["s3://AKIAX:an+sEcReT@bucket/usage", "s3://AKIAX:an/sEcReT+0@bucket", "s3://x:1sEcReT@b?a=b"],
)
def test_a_login_in_an_address_is_refused_and_not_repeated(out: str) -> None:
    with pytest.raises(UsageProblemError, match="holds a password") as refused:
        open_store(out)
    assert "AWS_SECRET_ACCESS_KEY" in refused.value.fix
    assert "sEcReT" not in f"{refused.value.what} {refused.value.fix}"


@pytest.mark.parametrize("out", ["mock://bucket/a:b@c", "mock://host:8020/user@x"])
def test_a_path_with_the_signs_of_a_login_is_none(out: str) -> None:
    assert open_store(out).base


def test_a_store_that_does_not_say_where_the_bucket_is_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(_uri: str) -> None:
        raise OSError("When resolving region for bucket 'b': could not resolve host")

    files = type("FileSystem", (), {"from_uri": staticmethod(nobody)})
    monkeypatch.setattr("pyarrow.fs.FileSystem", files)
    with pytest.raises(UnavailableError, match=r"s3://b/usage cannot be reached: When resolving"):
        open_store("s3://b/usage")


def test_attributes_are_not_archived() -> None:
    assert "attributes" not in [name for name, _ in ARCHIVED.columns]
