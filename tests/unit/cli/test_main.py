"""The contract of the command line: help, exit codes, errors, and what is imported when."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from streams.cli.main import COMMANDS, MEANT, loaded, run

HEAVY = {
    "aiohttp", "confluent_kafka", "faust", "jsonschema", "psycopg", "requests", "rich",
    "rocksdict", "stripe", "structlog",
}  # fmt: skip
OF_THE_SANDBOX = {"demo", "sandbox", "stripe-sandbox"}
"""What they say of themselves is the sandbox package's."""
ROOT = Path(__file__).parents[3]


def shell(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-m", "streams.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("command", [(), ("audit",), ("worker",), ("drill", "run")])
def test_help_is_there_at_once(command: tuple[str, ...], tmp_path: Path) -> None:
    """In seconds of the processor: what others do on this machine is not its fault."""
    quickest_s = 9.9
    for _ in range(3):
        before_s = _of_children_s()
        shown = shell(*command, "--help", cwd=tmp_path)
        quickest_s = min(quickest_s, _of_children_s() - before_s)
        assert shown.returncode == 0
    assert 0 < quickest_s < 0.5


def _of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_nothing_heavy_is_imported_before_a_command_is_typed(tmp_path: Path) -> None:
    """Nor for the help of any command: it is asked for in a hurry too."""
    helps = ["", *msgspec.json.decode((ROOT / "streams/cli/help.json").read_bytes(), type=dict)]
    assert {path.partition(" ")[0] for path in helps} >= set(COMMANDS) - OF_THE_SANDBOX
    script = (
        "import sys, streams.cli.main as m\n"
        f"for path in {helps}:\n"
        "    assert m.run([*path.split(), '--help']) == 0\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    imported = set(re.findall(r"'([^']+)'", shown.stderr))
    assert imported & HEAVY == set()


def test_only_the_worker_loads_the_engine() -> None:
    others = sorted({listed.module for listed in COMMANDS.values()} - {"worker_command"})
    script = f"""
import sys
from importlib import import_module
for name in {others}:
    import_module(f"streams.cli.{{name}}")
print("faust" in sys.modules)
"""
    loaded_by_others = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert loaded_by_others.stdout == "False\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_listed_and_has_its_own_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert loaded(name).name == name
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert re.search(rf"^  {name} +\S", listed, re.MULTILINE)
    if name not in {"sandbox", "demo"}:  # theirs is the sandbox package's own
        assert run([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: tailrace {name}")


@pytest.mark.parametrize("meant", sorted(set(MEANT.values())))
def test_what_is_meant_by_another_word_is_there(meant: str) -> None:
    assert run([*meant.split(), "--help"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["audti"], 2, "Did you mean 'audit'?"),
        (["why", "acme", "order-1"], 2, "No such command 'why'. Did you mean 'trace'?"),
        (["meters", "nonsense"], 2, "No such command 'nonsense'"),
        (["trace", "acme"], 2, "Missing argument 'EVENT_KEY'"),
        (["audit", "--since", "soon"], 78, "TAILRACE_LEDGER_DSN not set"),
        (["audit"], 78, "TAILRACE_SOURCE_DSN, TAILRACE_LEDGER_DSN not set"),
        (["status"], 78, "tailrace sandbox up"),
        (["worker"], 78, "TAILRACE_DATA_DIR"),
        (["topics", "check"], 78, "TAILRACE_KAFKA_BOOTSTRAP not set"),
        (["connector", "status"], 78, "TAILRACE_CONNECT_URL not set"),
        (["source", "guard"], 78, "TAILRACE_SOURCE_DSN not set"),
        (["schema", "check", "ledger"], 78, "--dsn postgresql://"),
        (["meters", "check", "gone.toml"], 78, "gone.toml: cannot be read"),
        (["config", "check"], 78, "TAILRACE_STRIPE_API_KEY not set"),
        (["status", "--dir", "gone"], 78, "tailrace sandbox up --dir gone"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_is_said_in_words_with_its_exit_code(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    shown = shell(*arguments, cwd=tmp_path)
    assert shown.returncode == code
    assert said in shown.stderr
    assert shown.stdout == ""
    assert "Traceback" not in shown.stderr


def test_every_problem_of_the_settings_is_shown_at_once(tmp_path: Path) -> None:
    shown = shell(
        "config", "check", cwd=tmp_path, TAILRACE_PARTITIONS="many", TAILRACE_NONSENSE="1"
    )
    assert shown.returncode == 78
    assert "TAILRACE_PARTITIONS: must be a whole number" in shown.stderr
    assert "TAILRACE_NONSENSE: unknown setting" in shown.stderr


def test_a_database_that_is_away_is_unavailable(tmp_path: Path) -> None:
    dsn = "postgresql://nobody:secret@127.0.0.1:1/ledger"
    shown = shell("status", cwd=tmp_path, TAILRACE_LEDGER_DSN=dsn)
    assert shown.returncode == 69
    assert "the ledger: PostgreSQL is not reachable: connection to server at" in shown.stderr
    assert "secret" not in shown.stderr


def test_a_dsn_that_is_none_is_a_configuration_error_that_shows_no_secret(tmp_path: Path) -> None:
    shown = shell("status", cwd=tmp_path, TAILRACE_LEDGER_DSN="postgresql//me:secret@host/x")
    assert shown.returncode == 78
    assert "TAILRACE_LEDGER_DSN: is no PostgreSQL connection string" in shown.stderr
    assert "secret" not in shown.stderr


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path: Path) -> None:
    shown = shell("status", "--debug", cwd=tmp_path)
    assert "Traceback" in shown.stderr
    assert shown.returncode != 0


def test_debug_behind_a_double_dash_is_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "--help", "--", "--debug"]) == 0
    assert "Usage: tailrace trace" in capsys.readouterr().out


def test_settings_are_printed_with_their_meaning(tmp_path: Path) -> None:
    shown = shell("config", "show", cwd=tmp_path)
    assert shown.returncode == 0
    assert "sandbox: none" in shown.stderr
    assert re.search(r"^TAILRACE_PARTITIONS +12 +partition count", shown.stdout, re.MULTILINE)


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tailrace ")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_leaves_ends_a_command_without_a_word(options: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "streams.cli.main", "config", "show", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        said = command.stderr.read()
    assert command.returncode == 141
    assert [line for line in said.splitlines() if not line.startswith("sandbox: ")] == []


def test_an_output_that_cannot_be_written_says_that_what_was_done_stands() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = subprocess.run(
            [sys.executable, "-m", "streams.cli.main", "config", "show"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert command.returncode == 75
    assert "error: the output cannot be written: No space left on device" in command.stderr
    assert "next: what was done stands" in command.stderr
