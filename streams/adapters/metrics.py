"""Metrics: every name in one table, read from the agents' own figures when somebody scrapes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class MetricName:
    """A name that dashboards and alerts rely on: never renamed, unit last."""

    name: str
    kind: Kind
    label: str | None
    meaning: str


METRICS: Final = (
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

Sample = tuple[str, str | None, float]
"""Metric name, label value or None, value."""


class _Figures(Collector):
    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """One family a name, with the samples as they are now."""
        samples: Mapping[str, list[tuple[str | None, float]]] = {m.name: [] for m in METRICS}
        for name, label, value in self._read():
            samples[name].append((label, value))
        for metric in METRICS:
            labels = [metric.label] if metric.label else []
            family_type = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = family_type(metric.name, metric.meaning, labels=labels)
            for label, value in samples[metric.name]:
                family.add_metric([label] if label is not None else [], value)
            yield family


def exposition(read: Callable[[], Iterable[Sample]]) -> Callable[[], bytes]:
    """A function that renders the figures in Prometheus's text format.

    Args:
        read: gives the samples; a name outside `METRICS` is a `KeyError`.
    """
    registry = CollectorRegistry()
    registry.register(_Figures(read))
    return lambda: generate_latest(registry)
