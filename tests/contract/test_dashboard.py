"""The dashboard asks for metrics that exist, in words that Prometheus understands."""

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.dashboard import ROWS, dashboard
from tests.support.promtool import promtool
from tests.support.runbooks import runbooks
from tests.support.series import SERIES

PANELS = [panel for _, panels in ROWS for panel in panels]
EXPRESSIONS = [text for panel in PANELS for text, _ in panel.expressions]
LABELS = {name: {*labels, "instance"} for name, labels in SERIES.items()}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_asks_for_metrics_of_the_table(expression: str) -> None:
    names = set(re.findall(r"\busage_\w+", expression))
    assert names
    assert names <= LABELS.keys()


def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    rules = "".join(
        f"      - record: usage:panel{number}\n        expr: {text}\n"
        for number, text in enumerate(EXPRESSIONS)
    )
    file = tmp_path / "panels.yml"
    file.write_text(f"groups:\n  - name: panels\n    rules:\n{rules}", encoding="utf-8")
    done = subprocess.run(
        [promtool(), "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(EXPRESSIONS)} rules found" in done.stdout


def test_legends_name_labels_of_their_metrics() -> None:
    for panel in PANELS:
        for expression, legend in panel.expressions:
            labels = set().union(*(LABELS[n] for n in re.findall(r"\busage_\w+", expression)))
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels, panel.title


def test_a_panel_names_a_runbook_that_exists() -> None:
    names = {book.name for book in runbooks()}
    assert {panel.runbook for panel in PANELS} - {""} <= names


def test_no_two_panels_share_a_place() -> None:
    panels = msgspec.json.decode(dashboard(), type=dict[str, Any])["panels"]
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
