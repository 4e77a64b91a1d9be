"""What was measured → what one worker takes and needs, and what a load takes: two tables.

One is a part of docs/performance.md, the other lies between two marks in docs/deploy.md. A figure
that was not measured stands in neither.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from streams.engine.generations import KEPT
from streams.settings import Settings
from tests.bench.report import OURS, Record
from tests.support.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.race import Figures

LOADS: Final = (100, 1_000, 10_000, 100_000)
BUSY: Final = 0.5
"""How much of a core the table of loads lets a worker use: the rest is for catching up."""
DAY_S: Final = 86_400
LIVED: Final = KEPT / (KEPT - 1)
"""Of the horizon, how long an identity is kept at most."""
ROUND_TO: Final = 500
FIGURES: Final[Sequence[tuple[str, str, str]]] = (
    ("state_bytes_an_id", "state on disk, files merged", "{:.1f} bytes an identity"),
    ("admit_log_bytes_an_id", "`usage.admit-log`", "{:.0f} bytes an identity, compressed"),
    ("recovery_s_a_million", "state rebuilt from `usage.admit-log`", "{:.1f} s a million"),
    ("recovery_rss_mb", "memory of a worker that rebuilds a million", "{:,.0f} MB"),
    ("warm_restart_s", "a restart with its disk, process to serving", "{:.1f} s"),
    ("fact_us", "a fact in the ledger, client and server", "{:.0f} µs of CPU"),
    ("publish_per_s", "a backlog published to the stand-in", "{:,.0f} requests a second"),
    ("accepted_p50_ms", "commit to acceptance, each event a request, p50", "{:.0f} ms"),
    ("accepted_p99_ms", "the same, p99", "{:.0f} ms"),
    ("replay_per_cpu_s", "`tailrace replay`", "{:,.0f} records a CPU-second"),
)
"""Name in sizes.json, how a table calls it, and its form."""


def parts(record: Record, sizes: Mapping[str, float]) -> Sequence[str]:
    """The section of docs/performance.md; nothing where ours was not exact."""
    heats = exact(record)
    if not heats:
        return ()
    rate = median(h.rate_warm for h in heats)
    state = state_bytes(heats, sizes)
    days = Settings.horizon_h / 24
    loads = [
        (
            f"{load_per_s:,}",
            f"{load_per_s / rate:.2f}",
            f"{max(1, -(-load_per_s // int(rate * BUSY)))}",
            f"{disk_gb(load_per_s, state):,.1f} GB",
        )
        for load_per_s in LOADS
    ]
    return (
        table(("one worker", "measured"), rows(heats, sizes)),
        f"From these, for {days:g} days of remembered identities, which are kept for up to "
        f"{KEPT}/{KEPT - 1} of that, and workers that leave {1 - BUSY:.0%} of their core for "
        "catching up:",
        table(("events per second", "cores busy", "workers", "disk for identities"), loads),
    )


def advice(record: Record, sizes: Mapping[str, float]) -> str:
    """What stands between the marks in docs/deploy.md; empty where ours was not exact."""
    heats = exact(record)
    if not heats:
        return ""
    slowest = min(h.rate_warm for h in heats)
    each_per_s = max(1, int(slowest * BUSY / ROUND_TO)) * ROUND_TO
    state = state_bytes(heats, sizes)
    days, lived = Settings.horizon_h / 24, f"{KEPT}/{KEPT - 1}"
    found = [
        (what, figure, "[`make bench`](performance.md)") for what, figure in rows(heats, sizes)
    ]
    return "\n\n".join(
        (
            table(("what", "figure", "how known"), found),
            "Reckon with half of the lowest admission figure. Then:",
            f"- **Workers**: events a second, divided by {each_per_s:,}, and one to spare.\n"
            "  A worker uses one core.\n"
            f"- **Disk**: events a second × {DAY_S:,} × days of the horizon × {lived} × "
            f"{state:.0f} bytes,\n  over all workers. 1,000 events a second and {days:g} days are "
            f"{disk_gb(1_000, state):.0f} GB.\n  An identity is kept for up to {lived} of the "
            "horizon.",
        )
    )


def exact(record: Record) -> list[Figures]:
    """Our own heats that count."""
    return [r[OURS] for r in record.rounds if OURS in r and not r[OURS].wrong]


def state_bytes(heats: Sequence[Figures], sizes: Mapping[str, float]) -> float:
    """On disk for each identity: of many million, else as a heat leaves it."""
    return sizes.get("state_bytes_an_id", median(h.state_per_id for h in heats))


def disk_gb(load_per_s: int, state: float) -> float:
    """For the identities of a horizon, at most."""
    return load_per_s * DAY_S * Settings.horizon_h / 24 * LIVED * state / 1e9


def rows(heats: Sequence[Figures], sizes: Mapping[str, float]) -> list[tuple[str, str]]:
    """What was measured of one worker."""
    rates = sorted(h.rate_warm for h in heats)
    ids = max(h.ids for h in heats)
    return [
        ("admission", f"{rates[0]:,.0f} to {rates[-1]:,.0f} events a CPU-second"),
        (
            "the same by the clock, database and broker on the same cores",
            f"{median(h.pace_warm for h in heats):,.0f} events a second",
        ),
        ("CPU-seconds per million events", f"{1e6 / median(rates):.1f}"),
        (
            f"memory of a worker with {ids:,} identities",
            f"{median(h.rss_peak_mb for h in heats):,.0f} MB",
        ),
        *((what, form.format(sizes[name])) for name, what, form in FIGURES if name in sizes),
    ]
