"""`tailrace status`: is money waiting, is anything parked, is everything alive, by the ledger."""

from typing import Any

import psycopg
import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, ledger_rows, row, rows
from streams.cli.errors import UnavailableError
from streams.cli.held import tell_held
from streams.cli.options import Dir, Json
from streams.cli.pauses import read_pauses
from streams.cli.stack import resolve
from streams.core.instant import SECOND_US, from_us, wire_text

app = typer.Typer(rich_markup_mode=None, add_completion=False)

CANARY_AGE_S_MAX = 120
"""A canary that is longer under way says that its partition does not flow. The age of the last one
that arrived says nothing: canaries are sent by audits and starts, not at regular times."""


@app.command()
def status(directory: Dir = None, as_json: Json = False) -> None:
    """What waits, what is parked, whether everything is alive; exit 0 whenever it can be read."""
    stack = resolve(directory)
    settings = stack.need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        figures = read_figures(ledger)
        figures["canary_under_way_s"] = _under_way_s(ledger, settings.source_dsn)
    if as_json:
        terminal.emit_json(figures)
        return
    for line in _lines(figures):
        terminal.data(line)
    for remark in _remarks(figures):
        terminal.say(remark)
    tell_held(stack.facts)


def read_figures(ledger: Connection) -> dict[str, Any]:
    """Everything `status` shows, as its JSON document.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    waiting = row(ledger, "status_pending")
    now_us = int(waiting["now_us"])

    def age_s(instant_us: int | None) -> float | None:
        return None if instant_us is None else round((now_us - instant_us) / SECOND_US, 3)

    return {
        "at": wire_text(now_us),
        "meter_events": {
            r["state"]: {"count": r["count"], "units": str(r["units"])}
            for r in rows(ledger, "status_meter_events")
        },
        "waiting": {
            "oldest_request_age_s": age_s(waiting["oldest_request_us"]),
            "oldest_attempt_age_s": age_s(waiting["oldest_attempt_us"]),
            "levels_not_cut": waiting["levels_open"],
            "levels_held": waiting["levels_held"],
            "entries_waiting": waiting["entries_waiting"],
            "entries_unmapped": waiting["entries_unmapped"],
            "entries_overdue": waiting["entries_overdue"],
            "lanes_paused": waiting["lanes_paused"],
            "proposals_open": waiting["proposals_open"],
            "cells_to_compare": waiting["cells_to_compare"],
        },
        "parked": [
            {
                "kind": r["kind"],
                "reason": r["reason"],
                "count": r["count"],
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
            for r in rows(ledger, "status_positions")
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
        "halts": [
            {"kind": r["kind"], "age_s": age_s(r["since_us"]), "detail": r["detail"]}
            for r in rows(ledger, "active_halts")
        ],
    }


def _under_way_s(ledger: Connection, source_dsn: str) -> float | None:
    """Since when a canary is under way that did not come through; None for none, or not asked."""
    if not source_dsn:
        return None
    try:
        with connected(source_dsn, "the service's database") as source:
            name = row(source, "source_name")["source"]
            came = [c for c in ledger_rows(ledger, "canary_ages") if c[0] == name]
            values = {"partitions": [c[1] for c in came], "came": [from_us(c[2]) for c in came]}
            age_s = row(source, "canary_under_way", values)["age_s"]
    except (UnavailableError, psycopg.Error) as error:
        terminal.say(f"canaries not compared with what was sent: {error}")
        return None
    return None if age_s is None else round(float(age_s), 3)


def _lines(figures: dict[str, Any]) -> list[str]:
    waiting = figures["waiting"]
    states = [
        (f"meter events {state}", numbers["count"], f"{numbers['units']} units")
        for state, numbers in figures["meter_events"].items()
    ]
    listed = [
        *states,
        (
            "oldest not settled",
            terminal.age(waiting["oldest_request_age_s"]),
            "of 23 h before it is doubt",
        ),
        ("levels not cut", waiting["levels_not_cut"], "their windows are open or closing"),
        ("entries waiting", waiting["entries_waiting"], "for their request"),
        ("entries overdue", waiting["entries_overdue"], "too late for their invoice"),
        ("entries unmapped", waiting["entries_unmapped"], "their tenants have no customer"),
        *(
            (
                f"{item['kind']} {item['reason']}",
                item["count"],
                f"oldest {terminal.age(item['oldest_age_s'])}",
            )
            for item in figures["parked"]
        ),
        *(
            [("dead corrected", figures["dead_corrected"], "resolved: corrections took them back")]
            if figures["dead_corrected"]
            else []
        ),
        *(
            (
                f"canary {c['source']}",
                terminal.age(c["oldest_age_s"]),
                f"partition {c['worst_partition']}",
            )
            for c in figures["canaries"]
        ),
        *(
            (
                f"audit {a['source']}",
                terminal.age(a["age_s"]),
                f"lost {a['lost']} · double {a['double']}",
            )
            for a in figures["audits"]
        ),
        ("partitions reporting", len(figures["positions"]), _oldest_position(figures)),
    ]
    return terminal.table(("figure", "now", ""), listed)


def _oldest_position(figures: dict[str, Any]) -> str:
    ages = [position["age_s"] for position in figures["positions"]]
    return (
        f"the quietest {terminal.age(max(ages))} ago"
        if ages
        else "no worker has told the ledger yet"
    )


def _remarks(figures: dict[str, Any]) -> list[str]:
    """What needs a person, each with the command to type."""
    waiting = figures["waiting"]
    remarks = [
        f"PUBLISHING STANDS STILL: {halt['kind']}, {halt['detail']}"
        + (": `tailrace ledger adopt`" if halt["kind"] == "ledger_went_back" else "")
        for halt in figures["halts"]
    ]
    remarks += [
        f"PUBLISHING IS PAUSED: {pause['scope']} {pause['subject'] or ''} by {pause['by']}: "
        f"{pause['reason']}; {pause['units_waiting']} units wait: `tailrace pause list`"
        for pause in figures["pauses"]
    ]
    if waiting["entries_unmapped"]:
        remarks.append("usage is held for unmapped tenants: `tailrace customers list`")
    if waiting["lanes_paused"]:
        remarks.append(f"{waiting['lanes_paused']} lanes are stopped: `tailrace pause list`")
    if waiting["entries_overdue"]:
        remarks.append("usage missed its invoice: `tailrace carry list`")
    if waiting["levels_held"]:
        remarks.append(f"{waiting['levels_held']} series are held: `tailrace audit`")
    if waiting["cells_to_compare"]:
        remarks.append(
            f"{waiting['cells_to_compare']} cells wait until Stripe's sums were compared with the "
            "ledger that was adopted: `tailrace reconcile`"
        )
    if waiting["proposals_open"]:
        remarks.append(
            f"{waiting['proposals_open']} corrections wait for another login: "
            "`tailrace correct list`"
        )
    kinds = {item["kind"] for item in figures["parked"]}
    remarks += [f"items wait for a person: `tailrace {kind} list`" for kind in sorted(kinds)]
    under_way_s = figures["canary_under_way_s"]
    if under_way_s is not None and under_way_s > CANARY_AGE_S_MAX:
        remarks.append(
            f"a canary is under way for {terminal.age(under_way_s)}, so a partition does not flow: "
            "`tailrace connector status`, `tailrace source guard`"
        )
    return remarks


APPS = {"status": app}
