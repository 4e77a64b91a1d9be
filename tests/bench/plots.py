"""heats.json → rates.svg and state.svg beside it.

`python -m tests.bench.plots FOLDER`, in the environment that has matplotlib: it imports nothing of
ours, and reads the record as plain JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib as mpl
import msgspec
from matplotlib import pyplot

PLOTS: Final = {
    "rates": ("events per CPU-second, whole run", "cpu_s"),
    "state": ("bytes of state on disk per identity", "ids"),
}
OURS: Final = "tailrace"
BLUE: Final = "#1f5fa8"
GREY: Final = "#9aa5b1"
Heat = dict[str, Any]


def figure(heat: Heat, plot: str) -> float:
    """What a plot shows of one heat."""
    events, state = float(heat["events"]), float(heat["state_bytes"])
    return events / float(heat["cpu_s"]) if plot == "rates" else state / float(heat["ids"])


def draw(folder: Path, plot: str, rounds: list[dict[str, Heat]]) -> None:
    """One horizontal bar a contender: the median, and a whisker from minimum to maximum."""
    title, divisor = PLOTS[plot]
    exact: dict[str, list[float]] = {}
    for heats in rounds:
        for name, heat in heats.items():
            if not heat["wrong"] and heat[divisor]:
                exact.setdefault(name, []).append(figure(heat, plot))
    order = sorted(exact, key=lambda name: median(exact[name]))
    middles = [median(exact[name]) for name in order]
    below = [m - min(exact[n]) for n, m in zip(order, middles, strict=True)]
    above = [max(exact[n]) - m for n, m in zip(order, middles, strict=True)]
    picture, axes = pyplot.subplots(figsize=(8, 0.55 * len(order) + 1.2), layout="constrained")
    colours = [BLUE if name == OURS else GREY for name in order]
    axes.barh(order, middles, color=colours, height=0.6)
    axes.errorbar(middles, order, xerr=[below, above], fmt="none", ecolor="black", capsize=3)
    for name, middle, reach in zip(order, middles, above, strict=True):
        axes.annotate(
            f"{middle:,.0f}", (middle + reach, name), xytext=(6, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    picture.savefig(folder / f"{plot}.svg", metadata={"Date": None})
    pyplot.close(picture)


def main() -> None:
    """Both plots."""
    folder = Path(sys.argv[1])
    # The same record gives the same file, and text stays text.
    mpl.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none"})
    record: dict[str, Any] = msgspec.json.decode((folder / "heats.json").read_bytes())
    for plot in PLOTS:
        draw(folder, plot, record["rounds"])


if __name__ == "__main__":
    mpl.use("svg")
    main()
