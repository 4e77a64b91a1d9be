"""Metrics: every name in one table, read when somebody scrapes.

Workers tell what they do themselves; `tailrace exporter` tells what is one for all of them: ledger,
slot, connector, the group's lag; `tailrace ingest` tells of the calls it answers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

Kind = Literal["counter", "gauge", "histogram"]
Teller = Literal["worker", "exporter", "ingest"]


@dataclass(frozen=True, slots=True)
class MetricName:
    """A name that dashboards and alerts rely on: never renamed, unit last."""

    name: str
    kind: Kind
    label: str | None
    """Names of its labels, with commas between."""
    meaning: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Its labels, in the order in which a sample gives their values."""
        return tuple(self.label.split(",")) if self.label else ()


WORKER_METRICS: Final = (
    MetricName("usage_records_total", "counter", None, "records of usage.events settled"),
    MetricName("usage_chunks_total", "counter", None, "chunks settled"),
    MetricName("usage_verdicts_total", "counter", "verdict", "records by their verdict"),
    MetricName("usage_partition_applied_offset", "gauge", "partition", "last settled offset"),
    MetricName("usage_partition_told_offset", "gauge", "partition", "last offset the ledger has"),
    MetricName("usage_partition_held", "gauge", "partition", "1 while a partition waits for help"),
    MetricName("usage_fact_batches_total", "counter", None, "batches the ledger confirmed"),
    MetricName("usage_refused_readings_total", "counter", None, "readings the ledger refused"),
    MetricName("usage_ledger_failures_total", "counter", None, "times the ledger did not answer"),
    MetricName("usage_ledger_went_back", "gauge", None, "1 when the ledger knows less than before"),
    MetricName("usage_catalogue_age_seconds", "gauge", None, "age of the newest catalogue reading"),
    MetricName("usage_entries_cut_total", "counter", None, "entries this worker cut"),
    MetricName("usage_lanes_claimed_total", "counter", None, "lanes this worker claimed"),
    MetricName("usage_attempts_total", "counter", None, "requests sent to Stripe"),
    MetricName("usage_settlements_total", "counter", "state", "settlements by state"),
    MetricName("usage_error_reports_total", "counter", "way", "error reports noted, by their way"),
    MetricName("usage_error_reports_repeated_total", "counter", None, "reports noted before"),
    MetricName("usage_error_reports_unreadable_total", "counter", None, "reports nobody can read"),
    MetricName("usage_meter_events_rejected_total", "counter", None, "meter events taken back"),
    MetricName("usage_report_sweeps_total", "counter", None, "readings of Stripe's error reports"),
    MetricName("usage_report_failures_total", "counter", None, "reports not noted: told again"),
    MetricName("usage_webhooks_refused_total", "counter", "why", "calls that were not Stripe's"),
    MetricName("usage_webhooks_ignored_total", "counter", "type", "events of other types"),
    MetricName("usage_publishing_paused", "gauge", "scope", "pauses of publishing in force"),
    MetricName("usage_audit_age_seconds", "gauge", "source", "age of the last completed audit"),
    MetricName("usage_audit_lost", "gauge", "source", "what the last audit found lost"),
    MetricName("usage_audit_double", "gauge", "source", "what the last audit found double"),
    MetricName("usage_audit_findings", "gauge", "source", "everything the last audit found"),
    MetricName("usage_missed_invoice_total", "counter", "outcome", "entries past their deadline"),
    MetricName("usage_sink_open", "gauge", None, "1 while Stripe counts as down for all"),
)

EXPORTER_METRICS: Final = (
    MetricName("usage_exporter_up", "gauge", "part", "1 while this part can be read"),
    MetricName("usage_meter_events", "gauge", "state", "meter events by state"),
    MetricName("usage_meter_event_units", "gauge", "state", "their units"),
    MetricName("usage_oldest_request_age_seconds", "gauge", None, "of the oldest not settled"),
    MetricName("usage_oldest_attempt_age_seconds", "gauge", None, "first attempt, not settled"),
    MetricName("usage_oldest_doubt_age_seconds", "gauge", None, "of those that Stripe may have"),
    MetricName("usage_idle_seconds", "gauge", None, "something is due and nobody sends it"),
    MetricName("usage_next_deadline_seconds", "gauge", None, "until what waits misses an invoice"),
    MetricName("usage_sink_failures", "gauge", None, "attempts failed since Stripe last answered"),
    MetricName("usage_fence_seconds", "gauge", None, "after an attempt, before it is doubt"),
    MetricName("usage_incomplete_windows", "gauge", "metric", "closed and not all at Stripe"),
    MetricName("usage_incomplete_age_seconds", "gauge", "metric", "since the oldest of them ended"),
    MetricName("usage_open_levels", "gauge", None, "levels whose entries are not all cut"),
    MetricName("usage_held_levels", "gauge", None, "series with contradicting readings"),
    MetricName("usage_waiting_entries", "gauge", None, "entries that wait for their request"),
    MetricName("usage_unmapped_entries", "gauge", None, "entries of tenants without customer"),
    MetricName("usage_overdue_entries", "gauge", None, "entries too late for their invoice"),
    MetricName("usage_stopped_lanes", "gauge", None, "lanes that publishing stopped"),
    MetricName("usage_open_proposals", "gauge", None, "corrections that wait for a second login"),
    MetricName("usage_doubtful_cells", "gauge", None, "to be compared after a ledger's adoption"),
    MetricName("usage_parked_items", "gauge", "kind,reason", "open items that wait for a person"),
    MetricName("usage_parked_age_seconds", "gauge", "kind,reason", "of the oldest of them"),
    MetricName("usage_partition_waiting", "gauge", "partition", "1 while it waits at a record"),
    MetricName("usage_ledger_findings", "gauge", "kind", "contradictions that nobody has cleared"),
    MetricName("usage_meter_findings", "gauge", "event_name,kind", "meters wrong at Stripe"),
    MetricName("usage_remarks", "gauge", "severity,name", "what `tailrace status` remarks"),
    MetricName("usage_money_at_risk", "gauge", None, "0 no, 1 not yet, 2 yes: as `status` says"),
    MetricName("usage_publishing_halts", "gauge", "kind", "reasons why nothing is published"),
    MetricName("usage_canary_age_seconds", "gauge", "source", "of the quietest partition"),
    MetricName("usage_canary_under_way_seconds", "gauge", "source", "sent and not come, 0: none"),
    MetricName("usage_ledger_offset", "gauge", "partition", "last offset whose facts it has"),
    MetricName("usage_ledger_offset_age_seconds", "gauge", "partition", "since it last moved"),
    MetricName("usage_slot_retained_bytes", "gauge", "source", "WAL that the slot holds back"),
    MetricName("usage_slot_behind_bytes", "gauge", "source", "WAL that Connect has not confirmed"),
    MetricName("usage_slot_limit_bytes", "gauge", "source", "at which the server gives it up"),
    MetricName("usage_slot_lost", "gauge", "source", "1 while there is no usable slot"),
    MetricName("usage_guard_findings", "gauge", "severity,rule", "what the slot guard sees now"),
    MetricName("usage_connector_running", "gauge", "source", "1 while all its tasks run"),
    MetricName("usage_partition_end_offset", "gauge", "partition", "end of the events topic"),
    MetricName("usage_partition_committed_offset", "gauge", "partition", "the group's position"),
    MetricName("usage_partition_lag_records", "gauge", "partition", "records not yet admitted"),
)
"""`tailrace exporter` tells these, and of the workers' those of pauses and audits."""

INGEST_METRICS: Final = (
    MetricName("usage_ingest_calls_total", "counter", "status", "calls answered, by HTTP status"),
    MetricName("usage_ingest_events_total", "counter", "outcome", "their events, by what became"),
    MetricName("usage_ingest_calls_waiting", "gauge", None, "calls that wait for their answer"),
    MetricName("usage_ingest_call_seconds", "histogram", None, "from a body to its answer"),
    MetricName("usage_ingest_limited_total", "counter", "holder", "calls over the rate of a key"),
    MetricName("usage_ingest_failures_total", "counter", "why", "calls that could not be recorded"),
    MetricName("usage_ingest_failure_age_seconds", "gauge", "why", "since the last of them"),
)

SHARED: Final = (
    "usage_publishing_paused",
    "usage_audit_age_seconds",
    "usage_audit_lost",
    "usage_audit_double",
    "usage_audit_findings",
)
METRICS: Final = WORKER_METRICS + EXPORTER_METRICS + INGEST_METRICS
TOLD_BY: Final[Mapping[Teller, tuple[MetricName, ...]]] = {
    "worker": WORKER_METRICS,
    "exporter": (*(m for m in WORKER_METRICS if m.name in SHARED), *EXPORTER_METRICS),
    "ingest": INGEST_METRICS,
}


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram's value."""

    below: tuple[tuple[float, int], ...]
    """Upper bounds, and how many values are not above; all of them at the last, infinity."""
    total: float

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus writes the bounds."""
        return [("+Inf" if bound == inf else repr(bound), count) for bound, count in self.below]


Sample = tuple[str, str | tuple[str, ...] | None, float]
"""Metric name, values of its labels, value."""
SpreadSample = tuple[str, str | tuple[str, ...] | None, Spread]
"""The same of a histogram."""


class _Figures(Collector):
    def __init__(
        self, read: Callable[[], Iterable[Sample | SpreadSample]], told: tuple[MetricName, ...]
    ) -> None:
        self._read = read
        self._told = told

    def collect(self) -> Iterator[Metric]:
        """One family a name, with the samples as they are now."""
        samples: Mapping[str, list[tuple[tuple[str, ...], float | Spread]]] = {
            m.name: [] for m in self._told
        }
        for name, label, value in self._read():
            values = label if isinstance(label, tuple) else () if label is None else (label,)
            samples[name].append((values, value))
        for metric in self._told:
            yield _family(metric, samples[metric.name])


def _family(
    metric: MetricName, samples: Iterable[tuple[tuple[str, ...], float | Spread]]
) -> Metric:
    if metric.kind == "histogram":
        spreads = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for values, spread in samples:
            if isinstance(spread, Spread):
                spreads.add_metric(values, spread.buckets, spread.total)
        return spreads
    family_type = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    numbers = family_type(metric.name, metric.meaning, labels=metric.labels)
    for values, number in samples:
        if not isinstance(number, Spread):
            numbers.add_metric(values, number)
    return numbers


def exposition(
    read: Callable[[], Iterable[Sample | SpreadSample]], teller: Teller = "worker"
) -> Callable[[], bytes]:
    """A function that renders the figures in Prometheus's text format.

    Args:
        read: gives the samples; a name that is not of `teller` is a `KeyError`.
        teller: whose part of the table is declared.
    """
    registry = CollectorRegistry()
    registry.register(_Figures(read, TOLD_BY[teller]))
    return lambda: generate_latest(registry)
