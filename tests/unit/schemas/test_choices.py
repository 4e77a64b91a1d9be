"""What a meter may be set to is the same in the file, in its schema for editors, and in SQL."""

import re
from pathlib import Path
from typing import Final

import pytest

from schemas.contracts import contract
from streams.core.meters_file import parse
from streams.core.window import WINDOW_LENGTHS_US

SQL: Final = (Path(__file__).parents[3] / "schemas" / "ledger" / "schema.sql").read_text(
    encoding="utf-8"
)
METER: Final = contract("meters")["$defs"]["meter"]["properties"]


def of_the_ledger(column: str) -> set[str]:
    """What the check of a column of `ledger.meter_version` lets in."""
    table = SQL.split("CREATE TABLE ledger.meter_version (", 1)[1].split("\n);", 1)[0]
    (listed,) = re.findall(rf"CHECK \({column} IN \(([^)]*)\)\)", table)
    return {each.strip(" '") for each in listed.split(",")}


def of_the_file(setting: str) -> set[str]:
    """What the reader of meters.toml says that it takes."""
    (problem,) = parse(f'[meters.x]\n{setting} = "no such thing"').problems
    return {each.strip() for each in problem.rule.removeprefix("must be one of ").split(",")}


@pytest.mark.parametrize("setting", ["aggregation", "publish", "carry"])
def test_a_choice_is_the_same_everywhere(setting: str) -> None:
    assert of_the_file(setting) == set(METER[setting]["enum"]) == of_the_ledger(setting)


def test_a_window_has_the_same_lengths_everywhere() -> None:
    assert of_the_file("window") == set(METER["window"]["enum"]) == set(WINDOW_LENGTHS_US)
    assert of_the_ledger("window_us") == {str(length) for length in WINDOW_LENGTHS_US.values()}
