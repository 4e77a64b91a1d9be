"""A database of the stack, backed up and restored with PostgreSQL's own programs."""

import os
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sandbox.postgres import find_binaries
from tests.support import witness
from tests.support.waiting import until


def back_up(dsn: str, file: Path) -> None:
    """Writes the database to a file while it is in use."""
    _run("pg_dump", "--format=custom", f"--file={file}", dsn)
    witness.did(f"database {_name(dsn)} is backed up")


def restore(dsn: str, file: Path) -> None:
    """Replaces the database by its backup, whoever is connected, as one does in an emergency.

    Its replication slots are gone with it.
    """
    admin = make_conninfo(dsn, dbname="postgres")
    with psycopg.connect(admin, autocommit=True) as conn:
        name = _name(dsn)
        closed = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false")
        conn.execute(closed.format(sql.Identifier(name)))

        def is_left() -> bool:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            row = conn.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (name,)
            ).fetchone()
            return row == (0,)

        until(f"everybody to leave database {name}", is_left, 30)
    _run("pg_restore", "--clean", "--if-exists", "--create", f"--dbname={admin}", str(file))
    witness.did(f"database {_name(dsn)} is restored from its backup")


def _name(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


def _run(program: str, *arguments: str) -> None:
    binaries, _ = find_binaries(os.environ)
    assert binaries is not None
    done = subprocess.run(
        [str(binaries.folder / program), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
