"""Figures of all heats → a table, and the goals with what was reached."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.bench.summary import Goal, put, spread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.bench.race import Figures

NAIVE: Final = "faust-naive"
OURS: Final = "tailrace"
CEILING: Final = "loop"
P1_LEAST: Final = 30.0
P2_MOST: Final = 1.25


def ratios(rounds: Sequence[dict[str, Figures]], above: str, below: str) -> list[float]:
    """Events per CPU-second of one contender over another's, in each round where both ran exact."""
    return [
        r[above].rate / r[below].rate
        for r in rounds
        if above in r and below in r and not r[above].wrong and not r[below].wrong
    ]


def goals(rounds: Sequence[dict[str, Figures]]) -> dict[str, Goal]:
    """The goals of which every part ran. A round that was not exact fails its goal."""
    found: dict[str, Goal] = {}
    ran = {name for r in rounds for name in r}
    if {OURS, NAIVE} <= ran:
        each = ratios(rounds, OURS, NAIVE)
        met = len(each) == len(rounds) and median(each) >= P1_LEAST
        goal = f">= {P1_LEAST:.0f}x naive Faust in events per CPU-second"
        found["P1"] = Goal(goal, spread(each, "x"), met)
    if {OURS, CEILING} <= ran:
        each = ratios(rounds, CEILING, OURS)
        met = len(each) == len(rounds) and median(each) <= P2_MOST
        goal = f"<= {P2_MOST}x the CPU of the bare loop"
        found["P2"] = Goal(goal, spread(each, "x"), met)
    return found


def table(rounds: Sequence[dict[str, Figures]]) -> str:
    """The heats by contender, minimum / median / maximum, as Markdown."""
    head = (
        "contender",
        "exact",
        "events",
        "events per CPU-s",
        "same, from the first output on",
        "ratio to naive Faust",
        "CPU s",
        "wall s",
        "peak RSS MB",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in dict.fromkeys(name for r in rounds for name in r):
        heats = [r[name] for r in rounds if name in r]
        exact = [h for h in heats if not h.wrong]
        cells = [name, f"{len(exact)}/{len(heats)}" + ("" if len(exact) == len(heats) else " DNF")]
        cells += [
            f"{heats[0].events:,}",
            _three([h.rate for h in exact]),
            _three([h.rate_running for h in exact]),
            _three(ratios(rounds, name, NAIVE), digits=1),
            _three([h.cpu_s for h in exact], digits=1),
            _three([h.wall_s for h in exact], digits=1),
            _three([h.rss_peak_mb for h in exact]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def disqualified(rounds: Sequence[dict[str, Figures]]) -> list[str]:
    """What was wrong, one line each."""
    return [
        f"round {number}: {h.name}: {line}"
        for number, r in enumerate(rounds, 1)
        for h in r.values()
        for line in h.wrong
    ]


def write(folder: Path, rounds: Sequence[dict[str, Figures]], facts: dict[str, Any]) -> str:
    """Writes `summary.json` and `summary.md`; the text of the latter."""
    reached = goals(rounds)
    put(reached, folder)
    heats = [{"round": n, "heats": list(r.values())} for n, r in enumerate(rounds, 1)]
    everything = msgspec.json.encode({"facts": facts, "rounds": heats})
    (folder / "heats.json").write_bytes(msgspec.json.format(everything))
    lines = [
        "# Benchmark",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
        table(rounds),
        "",
        "| goal | asked | reached (minimum / median / maximum) | met |",
        "|---|---|---|---|",
        *(
            f"| {name} | {one.goal} | {one.figure} | {'yes' if one.met else 'no'} |"
            for name, one in reached.items()
        ),
        "",
        *(f"- DNF {line}" for line in disqualified(rounds)),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    (folder / "summary.md").write_text(text, encoding="utf-8")
    return text


def _three(values: Sequence[float], digits: int = 0) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"**{values[0]:,.{digits}f}**"
    low, middle, high = min(values), median(values), max(values)
    return f"{low:,.{digits}f} / **{middle:,.{digits}f}** / {high:,.{digits}f}"
