"""Alerts: each is tested by promtool, rests on metrics that exist, and leads to a runbook."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from streams.cli.main import run
from tests.support.promtool import promtool
from tests.support.runbooks import HEADINGS, PLACEHOLDER, Runbook, runbooks
from tests.support.series import SERIES

ALERTS: Final = Path(__file__).parents[2] / "deploy" / "alerts"
RULES: Final = (ALERTS / "usage.rules.yml").read_text(encoding="utf-8")
TESTS: Final = (ALERTS / "usage.test.yml").read_text(encoding="utf-8")
NAMES: Final = re.findall(r"^ +- alert: (\w+)$", RULES, re.MULTILINE)
BOOKS: Final = runbooks()
COMMANDS: Final = [
    command for book in BOOKS for heading in HEADINGS for command in book.commands(heading)
]
MENTIONED: Final = [command for book in BOOKS for command in book.mentioned]


@pytest.mark.parametrize(
    "order",
    [
        ("check", "rules", "usage.rules.yml"),
        ("test", "rules", "usage.test.yml"),
        ("check", "config", "../prometheus.yml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_every_rule_sound_and_every_alert_at_its_time(
    order: tuple[str, ...],
) -> None:
    done = subprocess.run(
        [promtool(), *order], cwd=ALERTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_of_every_alert_it_is_tested_when_it_fires_and_when_not() -> None:
    tested = re.findall(r"^ +- name: (\w+) (fires|is silent)$", TESTS, re.MULTILINE)
    assert sorted(tested) == sorted((n, how) for n in NAMES for how in ("fires", "is silent"))
    assert len(re.findall(r"^ +exp_alerts: \[\]$", TESTS, re.MULTILINE)) == len(NAMES)


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert sorted(NAMES) == [book.name for book in BOOKS]
    named = re.findall(r"^ +runbook: docs/runbooks/(\w+)\.md$", RULES, re.MULTILINE)
    assert named == NAMES


def test_rules_rest_on_metrics_that_exist() -> None:
    expressions = re.findall(r"^ +expr: (.*)$", RULES, re.MULTILINE)
    used = {name for text in expressions for name in re.findall(r"\busage_\w+", text)}
    assert used <= SERIES.keys()
    assert len(used) > 20


def test_labels_of_rules_are_labels_of_their_metrics() -> None:
    for name, selected in re.findall(r"\b(usage_\w+)\{([^}]*)\}", RULES):
        assert {re.split("[!=]", each)[0] for each in selected.split(",")} <= SERIES[name], name


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.name)
def test_a_runbook_says_symptom_money_commands_and_how_it_ends(book: Runbook) -> None:
    assert book.text.startswith(f"# {book.name}\n\n**Symptom.** ")
    assert "\n**Is money at risk?** " in book.text
    assert re.findall(r"^## (.+)$", book.text, re.MULTILINE) == list(HEADINGS)
    assert book.commands("Look")
    assert book.commands("It is over when")
    for other in re.findall(r"\bUsage[A-Z]\w+", book.text):
        assert other in NAMES


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_every_command_of_a_runbook_is_one(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = shlex.split(PLACEHOLDER.sub("7", command))
    assert arguments[0] == "tailrace"
    # Behind the options, so that one which does not exist is refused before any help is given.
    assert run([*arguments[1:], "--help"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    given = {word for word in arguments if word.startswith("--")}
    assert all(re.search(rf"{option}\b", shown) for option in given)


@pytest.mark.parametrize("command", sorted(set(MENTIONED)))
def test_every_command_in_a_sentence_exists(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in command.split()[1:] if re.fullmatch(r"[a-z]+", word)][:2]
    options = [word for word in command.split() if word.startswith("--")]
    assert run([*words, *options, "--help"]) == 0, capsys.readouterr().err
