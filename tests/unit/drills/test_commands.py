"""`tailrace drill list` and `run`: what they print, and how they end."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from streams.cli import sandbox_commands
from streams.cli.main import run
from tests.drills import commands
from tests.support.stack import ROOT

SCHEMA = ROOT / "schemas/cli/drill_list.json"
CONFTEST = "from tests.drills.conftest import pytest_addoption, pytest_configure\n"
DRILLS = """
import pytest
from tests.support import witness
from tests.support.not_run import not_run
from tests.support.oracle import Verdict

pytestmark = pytest.mark.drill

def test_fine():
    witness.seen("units pending", 1)
    witness.judged(object(), Verdict())

@pytest.mark.parametrize("figure", ["lost", "double"])
def test_bad(figure):
    witness.judged(object(), Verdict(**{figure: 1}))

@pytest.mark.long
def test_elsewhere():
    not_run("no second machine")

@pytest.fixture
def broken():
    raise OSError("no port is free")

def test_unprepared(broken):
    pass

@pytest.mark.long
@pytest.mark.drill(name="endless", alone=True)
def test_as_long_as_one_likes(pytestconfig):
    seed, minutes = pytestconfig.getoption("drill_seed"), pytestconfig.getoption("drill_minutes")
    print("seed", seed, "minutes", minutes)
    witness.judged(object(), Verdict(lost=int(seed == 13)))

def test_stopped():
    raise KeyboardInterrupt
"""
CALL = """
import sys
from pathlib import Path
from streams.cli.fence import fenced
from tests.drills import commands

def app(args, **_):
    where_possible = "--where-possible" in args
    args = [each for each in args if each != "--where-possible"]
    everything = args == ["--all"]
    out = Path(sys.argv[2])
    folder = Path(sys.argv[1])
    numbers = [each for each in args if each.isdigit()]
    length = commands.Length(float(numbers[0]), int(numbers[1])) if numbers else commands.Length()
    names = [] if everything else [each for each in args if not each.isdigit()]
    return commands.run(names, everything=everything, out=out, where_possible=where_possible,
                        length=length, folder=folder)

sys.exit(fenced(app, "tailrace", sys.argv[3:]))
"""


class Made:
    """A folder of drills that need no stack, and a way to run them as the command does."""

    def __init__(self, path: Path) -> None:
        self.folder = path / "drills"
        self.folder.mkdir()
        (self.folder / "conftest.py").write_text(CONFTEST)
        (self.folder / "test_them.py").write_text(DRILLS)
        self.out = path / "reports"

    def run(self, *names: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            # So that it does not matter what this machine could start.
            "TAILRACE_STACK": "docker",
        }
        return subprocess.run(
            [sys.executable, "-c", CALL, str(self.folder), "reports", *names],
            cwd=self.out.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    @property
    def summary(self) -> dict[str, bool]:
        ran = msgspec.json.decode((self.out / "summary.json").read_bytes())
        return {one["name"]: one["ok"] for one in ran}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_a_drill_that_is_ok_ends_with_0_and_a_report(made: Made) -> None:
    done = made.run("fine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0 · double 0" in done.stdout
    assert made.summary == {"fine": True}
    assert (made.out / "fine.md").is_file()
    assert not (made.out / "full.json").exists()


def test_a_drill_that_is_not_ok_is_a_finding(made: Made) -> None:
    done = made.run("bad", "fine")
    assert done.returncode == 1
    assert "double 1" in done.stdout
    assert made.summary == {"fine": True, "bad-lost": False, "bad-double": False}


def test_a_drill_that_runs_alone_is_as_long_as_it_is_told(made: Made) -> None:
    done = made.run("endless", "2", "13")
    assert done.returncode == 1
    assert "seed 13 minutes 2.0" in done.stdout
    assert made.summary == {"endless": False}


def test_without_a_seed_each_run_has_another() -> None:
    seeds = {tuple(commands.Length().options()) for _ in range(20)}
    assert len(seeds) > 1
    assert all(len(options) == 1 for options in seeds)


def test_a_length_is_for_drills_that_have_none(made: Made) -> None:
    done = made.run("fine", "2", "13")
    assert done.returncode == 2
    assert "--minutes and --seed are not for these drills" in done.stderr
    assert "they are for endless" in done.stderr


def test_a_drill_that_cannot_run_here_says_why(made: Made) -> None:
    done = made.run("elsewhere")
    assert done.returncode == 69
    assert "error: not run: no second machine" in done.stderr


def test_a_drill_that_could_not_run_beside_others_is_no_success(made: Made) -> None:
    done = made.run("fine", "elsewhere")
    assert done.returncode == 1
    assert "not run: elsewhere: no second machine" in done.stderr
    assert made.summary == {"fine": True, "elsewhere": False}
    done = made.run("fine", "elsewhere", "--where-possible")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not run: elsewhere: no second machine" in done.stderr
    assert made.run("bad", "elsewhere", "--where-possible").returncode == 1


def test_a_drill_whose_stack_does_not_start_is_not_judged(made: Made) -> None:
    done = made.run("unprepared")
    assert done.returncode == 69
    assert "no port is free" in done.stdout
    assert made.summary == {"unprepared": False}


def test_stopped_is_not_done(made: Made) -> None:
    assert made.run("--all").returncode == 130
    assert not (made.out / "full.json").exists()


def test_a_full_run_leaves_its_record(made: Made) -> None:
    (made.folder / "test_them.py").write_text(DRILLS.partition("def test_stopped")[0])
    assert made.run("--all").returncode == 1
    record = msgspec.json.decode((made.out / "full.json").read_bytes())
    assert [one["name"] for one in record["drills"]] == [
        "fine", "bad-lost", "bad-double", "elsewhere", "unprepared",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["fien"], "no such drill: fien. Did you mean fine?"),
        (["ba"], "no such drill: ba."),
        ([], "name drills, or give --all"),
    ],
)
def test_a_name_that_is_none_is_a_usage_error(made: Made, names: list[str], said: str) -> None:
    done = made.run(*names)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not made.out.exists()


def test_drills_that_cannot_be_read_are_shown(made: Made) -> None:
    (made.folder / "test_them.py").write_text("import nothing_of_that_name\n")
    done = made.run("fine")
    assert done.returncode == 78
    assert "nothing_of_that_name" in done.stderr
    assert "Traceback (most" not in done.stderr.partition("next:")[2]


def test_every_drill_is_listed_with_what_happens(tmp_path: Path) -> None:
    """By the command itself, from any directory; names say nothing of files and functions."""
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli.main", "drill", "list", "--json"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    document = msgspec.json.decode(done.stdout)
    Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes())).validate(document)
    drills = {one["name"]: one for one in document["drills"]}
    assert {"stripe-away-26h", "killed-kafka", "worker-killed-batch-written"} <= drills.keys()
    assert all(one["about"] for one in drills.values())
    assert {one["name"] for one in drills.values() if one["size"] == "alone"} == {"soak"}


@pytest.mark.parametrize("words", [("list",), ("run", "fine")])
def test_outside_a_checkout_it_says_what_is_missing(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sandbox_commands, "find_spec", lambda _: None)
    assert run(["drill", *words]) == 78
    said = capsys.readouterr()
    assert "the drills come with a checkout of the repository" in said.err
    assert "clone the repository, `make sync`" in said.err
    assert said.out == ""


def test_tests_that_are_somebody_elses_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli.main", "drill", "list"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 78
    assert "tests.drills.commands: not installed; the drills come with" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_tools_of_the_tests_it_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("streams.cli.drill.find_spec", lambda name: name == "tests" or None)
    assert run(["drill", "list"]) == 78
    assert "pytest, psutil: not installed" in capsys.readouterr().err
