"""The metrics' table as Prometheus stores it: a histogram is three series."""

from collections.abc import Mapping
from typing import Final

from streams.adapters.metrics import METRICS, MetricName


def _names(metric: MetricName) -> tuple[str, ...]:
    if metric.kind != "histogram":
        return (metric.name,)
    return tuple(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))


SERIES: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset({*metric.labels, *({"le"} if name.endswith("_bucket") else ())})
    for metric in METRICS
    for name in _names(metric)
}
"""Names with their labels."""
