"""The ledger's last hour → curves: how long settling takes, how old what waits is, what lags."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from streams.cli.database import Connection, ledger_rows
from streams.console.reading import screen_rows
from streams.core.instant import SECOND_US

AGES: Final = ((60, "<1m"), (600, "<10m"), (3_600, "<1h"), (14_400, "<4h"),
               (72_000, "<20h"), (82_800, "<23h"))  # fmt: skip
"""Upper bounds in seconds; what is older has no name but doubt."""
OLDER: Final = "≥23h"


def read_latency(ledger: Connection) -> dict[str, Any]:
    """Seconds to settlement by minute: half of the requests took so long, and 99 of 100.

    `to_s` is the end of the hour that they lie in.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    found = screen_rows(ledger, "settle_latency")
    return {
        "to_s": int(ledger_rows(ledger, "now_us")[0][0]) // SECOND_US,
        "minutes_s": [row["minute_us"] // SECOND_US for row in found],
        "half_s": [round(row["half_s"], 3) for row in found],
        "most_s": [round(row["most_s"], 3) for row in found],
    }


def read_ages(ledger: Connection) -> dict[str, list[Any]]:
    """Requests that are not settled, by their age.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    found = screen_rows(ledger, "ages_in_flight", {"edges_s": [float(edge) for edge, _ in AGES]})
    counts = {row["bucket"]: row["count"] for row in found}
    return {
        "labels": [*(name for _, name in AGES), OLDER],
        "counts": [counts.get(bucket, 0) for bucket in range(len(AGES) + 1)],
    }


def lag_of(ends: Mapping[int, int], positions: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Records of each partition that the ledger does not contain yet.

    Args:
        ends: the next offset of each partition of the events topic.
        positions: of `status`: the last offset whose facts the ledger has.
    """
    told = {position["partition"]: position["position"] for position in positions}
    numbers = sorted(ends)
    return {
        "partitions": numbers,
        "records": [max(0, ends[number] - 1 - told.get(number, -1)) for number in numbers],
    }
