"""What every command of `tailrace` keeps, whichever is added: help, schemas, errors, imports."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from jsonschema import Draft202012Validator

from streams.cli.main import COMMANDS, loaded, run

ROOT: Final = Path(__file__).parents[2]
SCHEMAS: Final = ROOT / "schemas" / "cli"
ANOTHERS: Final = {"sandbox", "demo", "stripe-sandbox"}
"""Handed on as they are typed: their options are the sandbox package's own."""
FOR_EVER: Final = {"worker", "webhook", "exporter", "console"}
CODES: Final = {0, 1, 2, 69, 75, 78}

NAMED_OTHERWISE: Final = {
    "review list": "parked_list",
    "dead list": "parked_list",
    "review show": "parked_show",
    "dead show": "parked_show",
    "dead redrive": "redrive",
    "correct": "correction",
    "correct reverse": "correction",
    "correct list": "corrections_list",
    "correct limit": "correction_limits",
    "drill stripe-facts": "stripe_facts",
}
"""Schemas that are not named after their command; what several commands print is one."""
OF_AN_OPTION: Final = {"meters_edges"}

HEAVY: Final = {
    "aiohttp", "confluent_kafka", "faust", "jinja2", "jsonschema", "prometheus_client", "psycopg",
    "pyarrow", "requests", "rich", "rocksdict", "starlette", "stripe", "structlog", "uvicorn",
    "uvloop",
}  # fmt: skip
DATABASE: Final = {"psycopg"}
CAPTURE: Final = {"psycopg", "requests", "rich", "structlog"}
STRIPE: Final = {"aiohttp", "psycopg", "requests", "stripe"}
REPORTS: Final = {*STRIPE, "prometheus_client", "rich", "structlog"}
LOADS: Final[dict[str, set[str]]] = {
    "demo": set(),
    "sandbox": set(),
    "stripe-sandbox": set(),
    "drill": STRIPE,
    "worker": HEAVY - {"jinja2", "jsonschema", "pyarrow", "starlette", "uvicorn"},
    "webhook": REPORTS,
    "console": {*REPORTS, "confluent_kafka", "jinja2", "starlette", "uvicorn"},
    "ingest": {
        "aiohttp",
        "prometheus_client",
        "psycopg",
        "rich",
        "starlette",
        "structlog",
        "uvicorn",
    },
    "exporter": {*CAPTURE, "aiohttp", "confluent_kafka", "prometheus_client"},
    "status": DATABASE,
    "doctor": CAPTURE,
    "trace": DATABASE,
    "audit": STRIPE,
    "reconcile": STRIPE,
    "ledger": STRIPE,
    "meters": DATABASE,
    "customers": STRIPE,
    "windows": DATABASE,
    "statement": DATABASE,
    "export": {"confluent_kafka", "psycopg"},
    "archive": {"confluent_kafka", "psycopg"},
    "erase": {"confluent_kafka", "psycopg"},
    "replay": {"confluent_kafka", "psycopg", "rich", "rocksdict", "structlog"},
    "review": DATABASE,
    "dead": DATABASE,
    "correct": DATABASE,
    "rejections": REPORTS,
    "held": DATABASE,
    "findings": DATABASE,
    "pause": DATABASE,
    "resume": DATABASE,
    "carry": DATABASE,
    "deadlines": DATABASE,
    "topics": {"confluent_kafka", "psycopg"},
    "schema": DATABASE,
    "connector": CAPTURE,
    "source": CAPTURE,
    "config": DATABASE,
}
"""The slow libraries that a command brings when it is typed. More here is slower for its user."""


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(child, (*path, name))
    if not getattr(command, "commands", None) or command.invoke_without_command:
        yield path, command


LEAVES: Final = {
    " ".join(path): command
    for name in COMMANDS
    if name not in ANOTHERS
    for path, command in leaves(loaded(name), (name,))
}


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


READS: Final = sorted(name for name, command in LEAVES.items() if "--json" in options(command))


def schema_of(read: str) -> str:
    return NAMED_OTHERWISE.get(read, re.sub(r"[ -]", "_", read))


@pytest.mark.parametrize("read", READS)
def test_every_document_has_a_schema_and_a_test_that_holds_one_against_it(read: str) -> None:
    name = schema_of(read)
    schema = msgspec.json.decode((SCHEMAS / f"{name}.json").read_bytes())
    Draft202012Validator.check_schema(schema)
    assert schema["title"].startswith("What `tailrace ")
    mentioned = re.compile(rf'["/]{name}(\.json)?"')
    held = [
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and mentioned.search(path.read_text(encoding="utf-8"))
    ]
    assert held, f"run `tailrace {read} --json` in a test and validate it by {name}.json"


def test_every_schema_is_of_a_command() -> None:
    there = {path.stem for path in SCHEMAS.glob("*.json")}
    assert there == {schema_of(read) for read in READS} | OF_AN_OPTION


LOOKS: Final = {"show", "list", "check", "lint", "diff", "guard", "limit"}


def test_whatever_only_looks_has_json() -> None:
    looking = {name for name in LEAVES if name.split()[-1] in LOOKS}
    assert looking - set(READS) == {"config check"}  # which says ok, or fails


def test_whatever_asks_for_a_reason_shows_its_plan_first() -> None:
    """`--reason` is asked for by what is kept for ever; all of it waits for a yes."""
    kept = {name for name, command in LEAVES.items() if "--reason" in options(command)}
    assert kept
    hasty = sorted(name for name in kept if "--yes" not in options(LEAVES[name]))
    assert hasty == []


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_explains_itself_on_stdout_without_colour(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*name.split(), "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Usage: tailrace {name}")
    assert "\x1b" not in shown.out
    assert shown.err == ""
    undocumented = [
        parameter.name
        for parameter in LEAVES[name].params
        if parameter.param_type_name == "option" and not parameter.help
    ]
    assert undocumented == []


def filler(command: Any) -> list[str]:
    """Something for each argument that must be there."""
    return [
        {"schema": "ledger", "window": "2026-11-01T00:00:00Z"}.get(parameter.name, "1")
        for parameter in command.params
        if parameter.param_type_name == "argument" and parameter.required
    ]


@pytest.mark.parametrize("name", sorted(set(LEAVES) - FOR_EVER))
def test_without_a_stack_every_command_ends_in_words_and_with_a_code_that_means_something(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("TAILRACE_DIR", "TAILRACE_STACK"):
        monkeypatch.delenv(variable, raising=False)
    code = run([*name.split(), *filler(LEAVES[name])])
    shown = capsys.readouterr()
    assert code in CODES
    assert "Traceback" not in shown.out + shown.err
    assert "this is a defect" not in shown.err
    if code in {69, 75, 78}:
        assert shown.err.startswith("error: ")
        assert "\n  next: " in shown.err
        assert shown.out == ""


def test_every_command_s_slow_libraries_are_known() -> None:
    assert set(LOADS) == set(COMMANDS)


@pytest.mark.parametrize("module", sorted({listed.module for listed in COMMANDS.values()}))
def test_a_command_loads_no_more_than_it_needs(module: str) -> None:
    script = (
        f"import sys, streams.cli.main, streams.cli.{module}\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    (wanted, *others) = [LOADS[name] for name in COMMANDS if COMMANDS[name].module == module]
    assert all(other == wanted for other in others)
    assert HEAVY & set(done.stdout.split()) == wanted
