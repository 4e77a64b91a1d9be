"""Looks at this machine: environment and files → a probe to judge, and the programs to run."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]  # its stubs are a package of their own

from sandbox import jars as archives
from sandbox import postgres
from sandbox.jars import Jars
from sandbox.java import find_java
from sandbox.paths import nearest, unwritable
from sandbox.ports import busy_ports
from sandbox.prerequisites import Probe
from sandbox.stack import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sandbox.paths import Paths

MEBI = 1 << 20


class MachineError(Exception):
    """A program that was there a moment ago is gone; run the command again for the whole list."""


def probe(paths: Paths, environ: Mapping[str, str]) -> Probe:
    """Everything the prerequisites are judged by; starts nothing but `java -version` and such."""
    java, too_old = find_java(environ)
    binaries, refused = postgres.find_binaries(environ)
    existing = nearest(paths.dir)
    lock_text = archives.LOCK_FILE.read_text(encoding="ascii")
    path = environ.get("PATH", "")
    return Probe(
        directory=paths.dir,
        named=paths.named,
        python=(sys.version_info.major, sys.version_info.minor),
        java=java,
        java_too_old=tuple(too_old),
        maven=shutil.which("mvn", path=path),
        jars_cached=archives.cached(environ, lock_text) is not None,
        jars_dir=archives.cache_dir(environ),
        jars_mb=archives.DOWNLOAD_MB,
        postgres=binaries,
        postgres_refused=tuple(refused),
        is_root=os.geteuid() == 0,
        account=postgres.unprivileged(os.geteuid()),
        setpriv=shutil.which("setpriv", path=path),
        memory_mb=psutil.virtual_memory().available // MEBI,
        disk_mb=shutil.disk_usage(existing).free // MEBI,
        busy=tuple(busy_ports(paths.ports_json)) if os.access(existing, os.R_OK) else (),
        unwritable=unwritable(paths.dir),
        owner=_owner(existing),
    )


def jars(environ: Mapping[str, str], say: Callable[[str], None]) -> Jars:
    """The verified archives; downloads them the first time.

    Raises:
        JarsError: They are not as the lock says, or could not be fetched.
    """
    program = shutil.which("mvn", path=environ.get("PATH", "")) or "mvn"
    return archives.ensure(
        environ,
        lock_text=archives.LOCK_FILE.read_text(encoding="ascii"),
        resolve=archives.maven(program, environ),
        say=say,
    )


def machine(environ: Mapping[str, str], say: Callable[[str], None]) -> Machine:
    """The programs the stack runs with, after the prerequisites were found complete.

    Raises:
        JarsError: See `jars`.
        MachineError: Java or PostgreSQL went away since.
    """
    java, _ = find_java(environ)
    binaries, _ = postgres.find_binaries(environ)
    if java is None or binaries is None:
        message = "Java or PostgreSQL is not there any more; run the command again"
        raise MachineError(message)
    account = postgres.unprivileged(os.geteuid())
    return Machine(java.program, jars(environ, say), binaries, account)


def _owner(path: Path) -> str:
    uid = path.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
