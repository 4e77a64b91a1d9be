"""Figures of all heats → tables, and the goals with what was reached."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from tests.bench.race import Figures
from tests.bench.summary import Goal, put, spread
from tests.support.markdown import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NAIVE: Final = "faust-naive"
QUIX: Final = "quixstreams"
STREAMS: Final = "kafka-streams"
OURS: Final = "tailrace"
CEILING: Final = "loop"
HEATS: Final = "heats.json"
Round = dict[str, Figures]
"""What ran in one round, by name."""


class Part(msgspec.Struct, frozen=True):
    """One ratio that P1 asks for."""

    of: str
    least: float
    figure: str
    says: str


P1: Final = (
    Part(NAIVE, 50.0, "rate", "naive Faust"),
    Part(QUIX, 4.5, "rate", "quixstreams"),
    Part(STREAMS, 4.0, "rate", "Kafka Streams"),
    Part(STREAMS, 2.5, "rate_warm", "Kafka Streams in the second half"),
)
P2_MOST: Final = 1.25
FIGURES: Final[dict[str, tuple[str, int]]] = {
    "rate": ("events per CPU-s", 0),
    "rate_warm": ("same, second half", 0),
    "wall_s": ("wall s", 1),
    "rss_peak_mb": ("peak RSS MB", 0),
    "state_per_id": ("state B per id", 1),
}
"""Name of a figure → how a table calls it, and its digits."""


class Record(msgspec.Struct):
    """One race, as it is kept in heats.json."""

    facts: dict[str, str]
    rounds: list[Round]
    missing: dict[str, str] = {}
    """Contenders that could not run here, with the reason."""
    profile: str = ""
    """Where our own time goes."""

    @property
    def names(self) -> list[str]:
        """Everybody who ran, in the order of the race."""
        return list(dict.fromkeys(name for r in self.rounds for name in r))


def ratios(rounds: Sequence[Round], above: str, below: str, figure: str = "rate") -> list[float]:
    """A figure of one contender over another's, in each round where both ran exact."""
    return [
        getattr(r[above], figure) / getattr(r[below], figure)
        for r in rounds
        if above in r and below in r and not r[above].wrong and not r[below].wrong
        if getattr(r[below], figure)
    ]


def goals(record: Record) -> dict[str, Goal]:
    """The goals of which every part was asked for. A round that was not exact fails its goal."""
    found: dict[str, Goal] = {}
    asked = {*record.names, *record.missing}
    if {OURS, *(part.of for part in P1)} <= asked:
        found["P1"] = _p1(record)
    if {OURS, CEILING} <= asked:
        each = ratios(record.rounds, CEILING, OURS)
        met = _met(record, each, lambda middle: middle <= P2_MOST)
        goal = f"<= {P2_MOST}x the CPU of the bare loop"
        found["P2"] = Goal(goal, spread(each, "x"), met, "" if met else record.profile)
    return found


def _p1(record: Record) -> Goal:
    goal = ", ".join(f"{part.least:g}x {part.says}" for part in P1)
    figures: list[str] = []
    missed: list[str] = []
    for part in P1:
        if part.of in record.missing:
            figures.append(f"{part.says} not run")
            continue
        each = ratios(record.rounds, OURS, part.of, part.figure)
        figures.append(f"{part.says} {spread(each, 'x')}")
        if not _met(record, each, part.least.__le__):
            missed.append(part.says)
    why = [f"{name} not run: {reason}" for name, reason in record.missing.items()]
    if missed:
        why.insert(0, f"missed beside {' and '.join(missed)}; {record.profile}".rstrip("; "))
    met = False if missed else None if record.missing else True
    return Goal(f"events per CPU-second: >= {goal}", "; ".join(figures), met, "; ".join(why))


def _met(record: Record, each: Sequence[float], holds: Callable[[float], bool]) -> bool:
    return len(each) == len(record.rounds) > 0 and holds(median(each))


def heats(record: Record) -> str:
    """The heats by contender, minimum / median / maximum, as Markdown."""
    rows = []
    for name in record.names:
        ran = [r[name] for r in record.rounds if name in r]
        exact = [h for h in ran if not h.wrong]
        rows.append(
            [
                name,
                f"{len(exact)}/{len(ran)}" + ("" if len(exact) == len(ran) else " DNF"),
                f"{ran[0].events:,}",
                *(
                    _three([getattr(h, figure) for h in exact], digits)
                    for figure, (_, digits) in FIGURES.items()
                ),
            ]
        )
    rows += [[name, "not run", *["–"] * (len(FIGURES) + 1)] for name in record.missing]
    heads = ("contender", "exact", "events", *(called for called, _ in FIGURES.values()))
    return table(heads, rows)


def beside(record: Record, reference: str = OURS) -> str:
    """Each figure of the reference over that of the others in the same round, as Markdown."""
    ratios_of = {k: v for k, v in FIGURES.items() if k != "wall_s"}
    # Not everybody had as many events: pace instead of wall time.
    called = [*(says for says, _ in ratios_of.values()), "events per s, second half"]
    rows = [
        [name, *(_three(ratios(record.rounds, reference, name, figure), 2) for figure in figures)]
        for figures in [[*ratios_of, "pace_warm"]]
        for name in record.names
        if name != reference
    ]
    return table((f"{reference} to", *called), rows)


def disqualified(rounds: Sequence[Round]) -> list[str]:
    """What was wrong, one line each."""
    return [
        f"round {number}: {h.name}: {line}"
        for number, r in enumerate(rounds, 1)
        for h in r.values()
        for line in h.wrong
    ]


def told(record: Record) -> str:
    """Everything about the race but its goals, as Markdown."""
    parts = [
        heats(record),
        "Ratios within a round, minimum / **median** / maximum:",
        beside(record),
        "\n".join(
            [
                *(f"- {name}: {value}" for name, value in record.facts.items()),
                *(f"- {name} was not run: {reason}" for name, reason in record.missing.items()),
                *(f"- DNF {line}" for line in disqualified(record.rounds)),
                *([f"- where tailrace's time goes: {record.profile}"] if record.profile else []),
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def reached(entries: dict[str, Goal]) -> str:
    """Goals as Markdown."""
    words = {True: "yes", False: "**no**", None: "not measured"}
    rows = [
        (name, one.goal, one.figure, words[one.met] + (f": {one.why}" if one.why else ""))
        for name, one in entries.items()
    ]
    return table(("goal", "asked", "reached (minimum / median / maximum)", "met"), rows)


def write(folder: Path, record: Record) -> str:
    """Writes the record, its goals and `summary.md`; the text of the latter."""
    entries = goals(record)
    put(entries, folder)
    (folder / HEATS).write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    text = f"# Benchmark\n\n{told(record)}"
    if entries:
        text += f"\n{reached(entries)}\n"
    (folder / "summary.md").write_text(text, encoding="utf-8")
    return text


def _three(values: Sequence[float], digits: int = 0) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"**{values[0]:,.{digits}f}**"
    low, middle, high = min(values), median(values), max(values)
    return f"{low:,.{digits}f} / **{middle:,.{digits}f}** / {high:,.{digits}f}"
