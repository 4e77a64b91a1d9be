"""An example as a process: made from its own dependency file, fed with orders, one a line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.postgres import Database
from tests.support.stack import ROOT

EXAMPLES: Final = ROOT / "examples"
BUILT: Final = ROOT / "build" / "examples"
PYTHON: Final = ("python-psycopg", "python-sqlalchemy", "python-django")
OTHERS: Final = ("node-pg", "go-pgx", "java-jdbc")
"""Their libraries are fetched when they are made."""
MADE_BY: Final = {
    "node-pg": (("npm", "ci", "--no-audit", "--no-fund"),),
    "go-pgx": (("go", "build", "-o", "orders", "."),),
    "java-jdbc": (("mvn", "-q", "-B", "compile"),),
}
RUN_BY: Final = {
    **dict.fromkeys(PYTHON, (sys.executable, "orders.py")),
    "node-pg": ("node", "orders.js"),
    "go-pgx": ("./orders",),
    "java-jdbc": ("mvn", "-q", "-B", "exec:java"),
}


@dataclass(frozen=True)
class Service:
    """A running order service."""

    name: str
    process: subprocess.Popen[str]

    def place(self, order: str) -> tuple[str, str]:
        """What it says of an order: the first word, and the rest.

        Args:
            order: id, tenant, number of items, and `fail` where it is to be rolled back.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        # Maven resets a terminal's colours before the first line of what it runs.
        line = self.process.stdout.readline().replace("\x1b[0m", "")
        status, _, rest = line.strip().partition(" ")
        assert status, f"{self.name} ended: {self.process.poll()}"
        return status, rest


def made(name: str) -> Path:
    """The folder that it runs in, with its libraries."""
    if name in PYTHON:
        return EXAMPLES / name
    folder = BUILT / name
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)
    for command in MADE_BY[name]:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@contextmanager
def running(name: str, database: Database, login: str) -> Iterator[Service]:
    """The service on a database, for the time of a block; it ends when it is told no more."""
    place = f"postgresql://{login}@127.0.0.1:{database.server.port}/{database.name}"
    jdbc = f"jdbc:postgresql://127.0.0.1:{database.server.port}/{database.name}?user={login}"
    process = subprocess.Popen(
        RUN_BY[name],
        cwd=made(name),
        env={**os.environ, "DATABASE_URL": place, "JDBC_URL": jdbc},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Service(name, process)
    finally:
        process.communicate(timeout=30)
    assert process.returncode == 0
