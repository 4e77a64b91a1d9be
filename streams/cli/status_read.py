"""The ledger (and, for canaries, the service's database) → the figures of `tailrace status`.

One document for command, console and exporter: `schemas/cli/status.json` describes it, and
`streams.core.standing` is the part of it that remarks are made of.
"""

from collections.abc import Iterable
from typing import Any, Final

from streams.cli.database import Connection, row, rows
from streams.cli.held_records import read_held
from streams.cli.pauses import read_pauses
from streams.core.instant import SECOND_US, from_us, wire_text
from streams.core.observation import KeptBack

PARKED: Final = (
    "kind", "reason", "count", "cause", "by_code", "outcome", "rule", "rules", "metric",
)  # fmt: skip


def read_figures(ledger: Connection) -> dict[str, Any]:
    """Everything `status` shows, as its JSON document.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    waiting = row(ledger, "status_pending")
    now_us = int(waiting["now_us"])

    def age_s(instant_us: int | None) -> float | None:
        return None if instant_us is None else round((now_us - instant_us) / SECOND_US, 3)

    def left_s(instant_us: int | None) -> float | None:
        return None if instant_us is None else round((instant_us - now_us) / SECOND_US, 3)

    idle = rows(ledger, "status_idle")
    positions = rows(ledger, "status_positions")
    followed = {r["log_id"] for r in rows(ledger, "followed_logs")}
    sink = row(ledger, "status_sink", {"unsent": [cause.value for cause in KeptBack]})
    return {
        "at": wire_text(now_us),
        "meter_events": {
            r["state"]: {"count": r["count"], "units": str(r["units"])}
            for r in rows(ledger, "status_meter_events")
        },
        "waiting": {
            "oldest_request_age_s": age_s(waiting["oldest_request_us"]),
            "oldest_attempt_age_s": age_s(waiting["oldest_attempt_us"]),
            "oldest_doubt_age_s": age_s(waiting["oldest_doubt_us"]),
            "idle_s": age_s(idle[0]["since_us"]) if idle else None,
            "deadline_in_s": left_s(waiting["next_deadline_us"]),
            "levels_not_cut": waiting["levels_open"],
            "levels_held": waiting["levels_held"],
            "entries_waiting": waiting["entries_waiting"],
            "entries_unmapped": waiting["entries_unmapped"],
            "tenants_unmapped": waiting["tenants_unmapped"],
            "entries_overdue": waiting["entries_overdue"],
            "lanes_paused": waiting["lanes_paused"],
            "proposals_open": waiting["proposals_open"],
            "cells_to_compare": waiting["cells_to_compare"],
        },
        "unmapped": rows(ledger, "status_unmapped"),
        "sink": {
            "answered_age_s": age_s(sink["answered_us"]),
            "failures": sink["failures"],
            "failing_s": age_s(sink["failing_since_us"]),
            "refused": sink["refused"],
            "cause": sink["cause"] or None,
        },
        "parked": [
            {
                **{name: r[name] for name in PARKED},
                "oldest_age_s": age_s(r["oldest_us"]),
            }
            for r in rows(ledger, "status_parked")
        ],
        "dead_corrected": int(row(ledger, "status_corrected")["count"]),
        "canaries": [
            {
                "source": r["source"],
                "partitions": r["partitions"],
                "oldest_age_s": age_s(r["oldest_us"]),
                "worst_partition": r["worst_partition"],
            }
            for r in rows(ledger, "status_canaries")
        ],
        "positions": [
            {
                "topic": r["log_topic"],
                "log_id": r["log_id"],
                "partition": r["partition"],
                "position": r["position"],
                "catalogue": r["catalogue_hash"],
                "age_s": age_s(r["updated_us"]),
            }
            for r in positions
        ],
        "audits": [
            {
                "source": r["source"],
                "age_s": age_s(r["at_us"]),
                "lost": int(r["lost"]),
                "double": int(r["double"]),
            }
            for r in rows(ledger, "status_audits")
        ],
        "pauses": read_pauses(ledger),
        "findings": rows(ledger, "status_findings"),
        "meters": [
            {
                **{name: r[name] for name in ("event_name", "kind", "rule")},
                "age_s": age_s(r["found_us"]),
            }
            for r in rows(ledger, "status_meters")
        ],
        "held": [
            {"partition": r["partition"], "why": r["reason"]}
            for r in read_held(ledger)
            # Nobody waits any more in a log that another one has replaced.
            if r["state"] == "held" and (r["log_id"] in followed or not followed)
        ],
        "halts": [
            {"kind": r["kind"], "age_s": age_s(r["since_us"]), "detail": r["detail"]}
            for r in rows(ledger, "active_halts")
        ],
    }


def canary_under_way(
    source: Connection, ages: Iterable[tuple[Any, ...]]
) -> tuple[str, float | None]:
    """The outbox's name, and for how many seconds its oldest canary is under way; None for none.

    Args:
        source: the service's database.
        ages: of every source's canaries that came, as the ledger's `canary_ages` gives them.

    Raises:
        psycopg.Error: the database refused or went away.
    """
    name = row(source, "source_name")["source"]
    came = [age for age in ages if age[0] == name]
    values = {"partitions": [c[1] for c in came], "came": [from_us(c[2]) for c in came]}
    age_s = row(source, "canary_under_way", values)["age_s"]
    return name, None if age_s is None else float(age_s)
