"""The Grafana dashboard: a few rows of questions → deploy/grafana/usage.json, by `tests.docs`.

Every row asks one question, every panel answers it with metrics of the one table. A panel that has
an alert beside it links its runbook by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import msgspec

WIDTH: Final = 24
"""Columns of Grafana's grid."""
HEIGHT: Final = {"stat": 4, "timeseries": 8}


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture."""

    title: str
    unit: str
    """As Grafana calls it."""
    expressions: tuple[tuple[str, str], ...]
    """PromQL and the legend."""
    kind: str = "timeseries"
    width: int = 8
    red: float | None = None
    """From here on somebody has to look."""
    runbook: str = ""


def stat(title: str, unit: str, expression: str, red: float | None, runbook: str = "") -> Panel:
    """One number, which is red when somebody has to look."""
    return Panel(title, unit, ((expression, ""),), "stat", 4, red, runbook)


ROWS: Final = (
    (
        "Is money at risk?",
        (
            stat("0 no, 1 not yet, 2 yes", "short", "usage_money_at_risk", 2, "UsageMoneyAtRisk"),
            stat("Lost, by the last audit", "short", "max(usage_audit_lost)", 1, "UsageAuditLost"),
            stat(
                "Double, by the last audit",
                "short",
                "max(usage_audit_double)",
                1,
                "UsageAuditDouble",
            ),
            stat("Age of the audit", "s", "min(usage_audit_age_seconds)", 93_600, "UsageAuditOld"),
            stat(
                "Oldest doubt, of 23 h",
                "s",
                "usage_oldest_doubt_age_seconds",
                72_000,
                "UsageFenceNear",
            ),
            stat(
                "Closed windows not at Stripe",
                "short",
                "sum(usage_incomplete_windows) or vector(0)",
                None,
                "UsageWindowsIncomplete",
            ),
        ),
    ),
    (
        "What waits for a person?",
        (
            stat(
                "Dead",
                "short",
                'sum(usage_parked_items{kind="dead"}) or vector(0)',
                1,
                "UsageDeadItems",
            ),
            stat(
                "Review",
                "short",
                'sum(usage_parked_items{kind="review"}) or vector(0)',
                1,
                "UsageReviewWaiting",
            ),
            stat(
                "Entries without a customer",
                "short",
                "usage_unmapped_entries",
                1,
                "UsageUnmappedTenants",
            ),
            stat(
                "Held partitions",
                "short",
                "count(max by (partition) (usage_partition_held) == 1) or vector(0)",
                1,
                "UsagePartitionHeld",
            ),
            stat(
                "Pauses",
                "short",
                "sum(max by (scope) (usage_publishing_paused))",
                1,
                "UsagePublishingPaused",
            ),
            stat(
                "Wrong meters at Stripe",
                "short",
                "count(usage_meter_findings) or vector(0)",
                1,
                "UsageMeterWrong",
            ),
            stat(
                "Until what waits misses an invoice",
                "s",
                "usage_next_deadline_seconds",
                None,
                "UsageDeadlineNear",
            ),
            stat(
                "Missed their invoice",
                "short",
                "usage_overdue_entries",
                1,
                "UsageMissedInvoice",
            ),
        ),
    ),
    (
        "Does it flow?",
        (
            Panel(
                "Records admitted",
                "ops",
                (("sum(rate(usage_records_total[5m]))", "records"),),
            ),
            Panel(
                "Verdicts",
                "ops",
                (("sum by (verdict) (rate(usage_verdicts_total[5m]))", "{{verdict}}"),),
            ),
            Panel(
                "Lag by partition",
                "short",
                (("usage_partition_lag_records", "partition {{partition}}"),),
                runbook="UsagePartitionLagging",
            ),
            Panel(
                "Canary under way",
                "s",
                (("usage_canary_under_way_seconds", "{{source}}"),),
                red=120,
                runbook="UsageCanaryStuck",
            ),
            Panel(
                "Since a partition last told the ledger",
                "s",
                (("usage_ledger_offset_age_seconds", "partition {{partition}}"),),
            ),
            Panel(
                "Age of the catalogue, by worker",
                "s",
                (("usage_catalogue_age_seconds", "{{instance}}"),),
                red=600,
                runbook="UsageWorkersAbsent",
            ),
        ),
    ),
    (
        "Does it reach Stripe?",
        (
            Panel(
                "Attempts and settlements",
                "ops",
                (
                    ("sum(rate(usage_attempts_total[5m]))", "attempts"),
                    ("sum by (state) (rate(usage_settlements_total[5m]))", "{{state}}"),
                ),
            ),
            Panel(
                "Not settled",
                "short",
                (
                    ('usage_meter_events{state=~"pending|ambiguous|dead"}', "{{state}}"),
                    ("usage_waiting_entries", "entries waiting"),
                    ("usage_open_levels", "levels not cut"),
                ),
            ),
            Panel(
                "Age of the oldest",
                "s",
                (
                    ("usage_oldest_request_age_seconds", "request"),
                    ("usage_oldest_attempt_age_seconds", "first attempt"),
                    ("usage_oldest_doubt_age_seconds", "doubt"),
                    ("usage_fence_seconds", "fence"),
                ),
                runbook="UsageUnsettled",
            ),
            Panel(
                "Stripe down for all, by worker",
                "short",
                (("usage_sink_open", "{{instance}}"),),
                red=1,
                runbook="UsageSinkDown",
            ),
            Panel(
                "Since the oldest incomplete window ended",
                "s",
                (("usage_incomplete_age_seconds", "{{metric}}"),),
                red=14_400,
                runbook="UsageWindowsIncomplete",
            ),
            Panel(
                "Taken back by Stripe",
                "short",
                (("sum(increase(usage_meter_events_rejected_total[1h]))", "meter events"),),
                runbook="UsageDeadItems",
            ),
        ),
    ),
    (
        "Does what comes by HTTP arrive?",
        (
            Panel(
                "Calls, by answer",
                "ops",
                (("sum by (status) (rate(usage_ingest_calls_total[5m]))", "{{status}}"),),
            ),
            Panel(
                "Their events",
                "ops",
                (("sum by (outcome) (rate(usage_ingest_events_total[5m]))", "{{outcome}}"),),
                runbook="UsageIngestRefused",
            ),
            Panel(
                "From body to answer",
                "s",
                tuple(
                    (
                        f"histogram_quantile({part}, sum by (le) "
                        "(rate(usage_ingest_call_seconds_bucket[5m])))",
                        f"{part:.0%} of calls",
                    )
                    for part in (0.5, 0.95, 0.99)
                ),
                red=2.5,
                runbook="UsageIngestSlow",
            ),
            Panel(
                "Not recorded, by cause",
                "ops",
                (("sum by (why) (rate(usage_ingest_failures_total[5m]))", "{{why}}"),),
                runbook="UsageIngestFailing",
            ),
            Panel(
                "Since the last failure",
                "s",
                (("min by (why) (usage_ingest_failure_age_seconds)", "{{why}}"),),
                runbook="UsageIngestFailing",
            ),
            Panel(
                "In hand, and keys over their rate",
                "short",
                (
                    ("usage_ingest_calls_waiting", "waiting at {{instance}}"),
                    ("sum by (holder) (rate(usage_ingest_limited_total[5m]))", "429 of {{holder}}"),
                ),
                runbook="UsageIngestLimited",
            ),
        ),
    ),
    (
        "Is capture safe?",
        (
            Panel(
                "WAL of the slot against its limit",
                "bytes",
                (
                    ("usage_slot_retained_bytes", "{{source}} retained"),
                    ("usage_slot_behind_bytes", "{{source}} not confirmed"),
                    ("usage_slot_limit_bytes", "{{source}} limit"),
                ),
                runbook="UsageSlotNearLimit",
            ),
            Panel(
                "Findings of the guard",
                "short",
                (("usage_guard_findings", "{{severity}} {{rule}}"),),
                red=1,
                runbook="UsageCaptureUnsafe",
            ),
            Panel(
                "What can be read",
                "short",
                (
                    ("usage_exporter_up", "{{part}}"),
                    ("usage_connector_running", "connector {{source}}"),
                ),
                runbook="UsageExporterPartDown",
            ),
        ),
    ),
)


def dashboard() -> str:
    """The file's content."""
    document = {
        "uid": "tailrace-usage",
        "title": "Usage: is money at risk?",
        "description": "Generated by `python -m tests.docs` from tests/dashboard.py; do not edit.",
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_placed()),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _placed() -> Iterator[dict[str, Any]]:
    numbers, y = count(1), 0
    for question, panels in ROWS:
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        yield {"id": next(numbers), "type": "row", "title": question, "gridPos": place}
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT[panel.kind]
            yield _panel(next(numbers), panel, x, y)
            x += panel.width
        y += HEIGHT[panels[-1].kind]


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": f"Runbook: docs/runbooks/{panel.runbook}.md" if panel.runbook else "",
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHT[panel.kind]},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + place), "expr": text, "legendFormat": legend}
            for place, (text, legend) in enumerate(panel.expressions)
        ],
    }
