"""`tailrace meters check --edges`: every edge of time under somebody's own meters."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from streams.cli import terminal
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.edges import Tried, read_edges, try_edges
from streams.core.instant import DAY_US, LAST_US

FOR_ALL_TIME_US = LAST_US + DAY_US


def show_edges(versions: Sequence[MeterVersion], *, as_json: bool) -> bool:
    """Prints each edge with its verdict and window; whether all are as expected.

    Args:
        versions: the meters, as they would judge.
        as_json: one document instead of a table.
    """
    edges = read_edges(files("schemas").joinpath("time_edges.json").read_bytes())
    found = list(try_edges(edges, Catalogue(tuple(versions), FOR_ALL_TIME_US)))
    wrong = [one for one in found if not one.right]
    if as_json:
        terminal.emit_json({"edges": [_document(one) for one in found], "wrong": len(wrong)})
        return not wrong
    heads = ("edge", "meter", "verdict", "start", "end", "deadline", "")
    listed = [
        (one.edge, one.metric or "any", one.found, one.start, one.end, one.deadline, _remark(one))
        for one in found
    ]
    terminal.show_table(heads, listed)
    terminal.data(f"{len(found)} edges, {len(wrong)} not as expected")
    return not wrong


def _remark(one: Tried) -> str:
    if one.right:
        return "" if one.expected is not None else "depends on skew_max"
    return f"EXPECTED {one.expected}"


def _document(one: Tried) -> dict[str, Any]:
    return {
        "edge": one.edge,
        "metric": one.metric,
        "verdict": one.found,
        "expected": one.expected,
        "start": one.start,
        "end": one.end,
        "deadline": one.deadline,
        "right": one.right,
    }
