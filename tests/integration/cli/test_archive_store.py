"""An archive in an object store: whole or not there, and its secret nowhere."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import pytest
from moto import settings as of_moto

from streams.cli.archive_store import open_store
from streams.cli.errors import UnavailableError
from tests.support.object_store import ACCESS_KEY, LOGIN, SECRET_KEY, ObjectStore, object_store
from tests.support.proxy import proxied
from tests.support.stack import ROOT
from tests.support.waiting import until

PATH = "archive/day=2026-11-29/archive.parquet"
KEY = f"usage/{PATH}"
CONTENT = os.urandom(1 << 20) * 12
BEGUN = 11 << 20
"""More than one part of an upload, which has ten megabytes, and less than all."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    with object_store() as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "day.parquet"
    made.write_bytes(CONTENT)
    return made


def test_what_is_put_is_there_whole_and_reads_back(store: ObjectStore, file: Path) -> None:
    archive = open_store(store.uri())
    assert archive.digest_of(PATH) is None
    archive.put(file, PATH)
    assert store.keys() == [KEY]
    assert store.object(KEY) == CONTENT
    assert archive.digest_of(PATH) == sha256(CONTENT).hexdigest()
    file.write_bytes(b"other")
    archive.put(file, PATH)
    assert store.object(KEY) == b"other"


@dataclass
class Torn:
    """A file of which somebody is stopped in the middle."""

    error: BaseException

    def open(self, _mode: str) -> IO[bytes]:
        torn, error = io.BytesIO(CONTENT), self.error
        read = torn.read

        def first_half(count: int = -1) -> bytes:
            if torn.tell() >= BEGUN:
                raise error
            return read(count)

        torn.read = first_half  # type: ignore[method-assign, assignment]
        return torn


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("the disk is gone")])
def test_half_a_file_never_stands_under_its_name(
    store: ObjectStore, file: Path, error: BaseException
) -> None:
    archive = open_store(store.uri())
    torn: Any = Torn(error)
    with pytest.raises((KeyboardInterrupt, UnavailableError)):
        archive.put(torn, PATH)
    assert store.keys() == []
    archive.put(file, PATH)
    assert archive.digest_of(PATH) == sha256(CONTENT).hexdigest()


PUTS = """
import sys
from pathlib import Path
from streams.cli.archive_store import open_store
open_store(sys.argv[1]).put(Path(sys.argv[2]), sys.argv[3])
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A file that has only as much as a test writes."""
    pipe = tmp_path / "slow.parquet"
    os.mkfifo(pipe)
    return pipe


def test_an_upload_that_is_killed_leaves_nothing_to_be_read_and_is_repeated(
    store: ObjectStore, file: Path, slow: Path
) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", PUTS, store.uri(), str(slow), PATH],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        with slow.open("wb") as half:
            half.write(CONTENT[:BEGUN])
            half.flush()
            until("its upload is under way", lambda: store.under_way() == [KEY], 30)
            killed.kill()
            assert killed.wait(30) == -signal.SIGKILL
    finally:
        killed.kill()
    assert store.keys() == []
    archive = open_store(store.uri())
    archive.put(file, PATH)
    assert store.object(KEY) == CONTENT


def test_an_upload_whose_network_goes_away_leaves_nothing_to_be_read(
    store: ObjectStore, file: Path, slow: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with proxied(store.url) as network:
            archive = open_store(store.uri(network.url))
            putting = pool.submit(archive.put, slow, PATH)
            half = slow.open("wb")
            half.write(CONTENT[:BEGUN])
            until("its upload is under way", lambda: store.under_way() == [KEY], 30)
        half.write(CONTENT[BEGUN:])
        half.close()
        with pytest.raises(UnavailableError, match="cannot be written"):
            putting.result(60)
    assert store.keys() == []
    open_store(store.uri()).put(file, PATH)
    assert store.object(KEY) == CONTENT


def test_a_store_that_nobody_reaches_is_said_by_name(file: Path, store: ObjectStore) -> None:
    with proxied(store.url) as network:
        gone = network.url
    archive = open_store(store.uri(gone))
    with pytest.raises(UnavailableError, match=r"cannot be written: .*connect to server") as put:
        archive.put(file, PATH)
    with pytest.raises(UnavailableError, match=r"cannot be read: .*connect to server") as read:
        archive.digest_of(PATH)
    for error in (put.value, read.value):
        assert store.uri(gone) in error.what
        assert "AWS_ACCESS_KEY_ID" in error.fix
        assert SECRET_KEY not in f"{error.what} {error.fix}"
    assert store.keys() == []


def test_a_login_that_may_not_write_is_told_so_and_its_secret_nobody(
    file: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_moto, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    archive = open_store(store.uri())
    with pytest.raises(UnavailableError, match=r"INVALID_ACCESS_KEY_ID|ACCESS_DENIED") as refused:
        archive.put(file, PATH)
    assert SECRET_KEY not in str(refused.value)
    assert ACCESS_KEY not in str(refused.value)


def test_a_bucket_that_is_not_there_is_said(file: Path, store: ObjectStore) -> None:
    nowhere = store.uri().replace("bucket/usage", "elsewhere/usage")
    with pytest.raises(UnavailableError, match=r"elsewhere.*(NO_SUCH_BUCKET|NoSuchBucket)"):
        open_store(nowhere).put(file, PATH)
