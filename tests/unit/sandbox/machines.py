"""Probes of machines that do not exist."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox.java import Java
from sandbox.postgres import Binaries
from sandbox.prerequisites import Probe

GOOD = Probe(
    directory=Path("/srv/tailrace"),
    named="--dir /srv/tailrace",
    python=(3, 11),
    java=Java(Path("/usr/bin/java"), 17),
    java_too_old=(),
    maven=None,
    jars_cached=True,
    jars_dir=Path("/srv/ada/.cache/tailrace/jars"),
    jars_mb=100,
    postgres=Binaries(Path("/usr/lib/postgresql/15/bin"), 15, "/usr/lib/postgresql/15/bin"),
    postgres_refused=(),
    is_root=False,
    account=None,
    setpriv=None,
    memory_mb=8000,
    disk_mb=50_000,
    busy=(),
    unwritable=None,
    owner="ada",
)


def machine(**differences: Any) -> Probe:
    return replace(GOOD, **differences)
