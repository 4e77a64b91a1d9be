"""`tailrace status`: is money at risk, and what needs a person, by the ledger."""

import time
from typing import Annotated, Any

import typer

from streams.cli import terminal
from streams.cli.database import connected
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.flow_read import read_flow
from streams.cli.held import REMEDY, held_partitions
from streams.cli.options import Dir, Json
from streams.cli.stack import Stack, resolve
from streams.cli.status_read import read_figures
from streams.cli.status_watch import EVERY_S, watch
from streams.core.remark import Remark
from streams.core.risk import Verdict, remarks, verdict
from streams.core.standing import read

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def status(
    directory: Dir = None,
    watched: Annotated[
        bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Whether money is at risk, what waits, what is parked, and what to type about each.

    Exit 1 while money is at risk (YES); 0 where amounts only wait, and where nothing does.
    """
    stack = resolve(directory)
    if watched:
        _watch(stack, as_json=as_json)
        return
    figures, found, judged = look(stack)
    if as_json:
        terminal.emit_json(document(figures, found, judged))
    else:
        for line in _screen(figures, found, judged):
            terminal.data(line)
    if judged.at_risk == "yes":
        raise typer.Exit(FINDING)


def _screen(figures: dict[str, Any], found: tuple[Remark, ...], judged: Verdict) -> list[str]:
    """The verdict, what to type about it, and the figures: all of it is what was asked for."""
    remedy = [REMEDY] if figures["held"] else []
    told = [*map(str, found), *remedy]
    return [f"money at risk: {judged.text}", *told, "", *_lines(figures)]


def _watch(stack: Stack, *, as_json: bool) -> None:
    if as_json:
        raise UsageProblemError(
            "--watch and --json: a document is one moment",
            fix="`tailrace status --json`, as often as you like",
        )
    stack.need("ledger_dsn")

    def screen() -> list[str]:
        figures, found, judged = look(stack)
        return [*_screen(figures, found, judged), "", figures["at"]]

    watch(screen, lambda: time.sleep(EVERY_S))


def look(stack: Stack) -> tuple[dict[str, Any], tuple[Remark, ...], Verdict]:
    """The figures now, what needs a person, and the verdict.

    Raises:
        CommandError: the ledger cannot be read.
        psycopg.Error: it went away meanwhile.
    """
    settings = stack.need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        figures = read_figures(ledger)
        figures |= read_flow(stack, ledger, figures)
    known = {held["partition"] for held in figures["held"]}
    figures["held"] += [
        {"partition": held.partition, "why": held.why}
        for held in held_partitions(stack.facts)
        if held.partition not in known
    ]
    found = remarks(read(figures))
    return figures, found, verdict(found)


def document(figures: dict[str, Any], found: tuple[Remark, ...], judged: Verdict) -> dict[str, Any]:
    """Verdict first, then the figures, then what needs a person."""
    return {
        "at": figures["at"],
        "money_at_risk": {"at_risk": judged.at_risk, "text": judged.text},
        **{name: value for name, value in figures.items() if name != "at"},
        "remarks": [
            {"severity": r.severity, "name": r.name, "text": r.text, "command": r.command}
            for r in found
        ],
    }


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
            "pending or in doubt",
        ),
        (
            "oldest in doubt",
            terminal.age(waiting["oldest_doubt_age_s"]),
            "of 23 h before only Stripe's sums can end it",
        ),
        ("Stripe's last answer", terminal.age(figures["sink"]["answered_age_s"]), _sink(figures)),
        ("levels not cut", waiting["levels_not_cut"], "their windows are open or closing"),
        ("entries waiting", waiting["entries_waiting"], "for their request"),
        ("entries overdue", waiting["entries_overdue"], "too late for their invoice"),
        ("entries unmapped", waiting["entries_unmapped"], "their tenants have no customer"),
        *(
            (
                " ".join(
                    item[name] for name in ("kind", "reason", "cause", "metric") if item[name]
                ),
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
        *_capture(figures),
        ("partitions reporting", len(figures["positions"]), _oldest_position(figures)),
    ]
    return terminal.table(("figure", "now", ""), listed)


def _capture(figures: dict[str, Any]) -> list[tuple[str, Any, str]]:
    capture = figures["capture"]
    unread = {part["what"]: part["why"] for part in capture["unread"]}
    asked = not capture["unset"] and "what is recorded" not in unread
    return [
        (
            "recorded, not in the ledger",
            capture["untold"] if asked else "?",
            f"oldest {terminal.age(capture['untold_age_s'])}"
            if asked and capture["untold"]
            else "since the ledger was told last"
            if asked
            else unread.get("what is recorded", "TAILRACE_SOURCE_DSN is not set"),
        ),
        ("replication slot", capture["slot"] or "?", "capture reads it, or nothing arrives"),
        (
            "connector",
            capture["connector"] or "?",
            unread.get("the connector", "" if capture["connector"] else "not looked at"),
        ),
    ]


def _oldest_position(figures: dict[str, Any]) -> str:
    ages = [position["age_s"] for position in figures["positions"]]
    return (
        f"the quietest {terminal.age(max(ages))} ago"
        if ages
        else "no worker has told the ledger yet"
    )


def _sink(figures: dict[str, Any]) -> str:
    sink = figures["sink"]
    if sink["failures"]:
        return f"{sink['failures']} failures since: {sink['cause']}"
    if sink["answered_age_s"] is None:
        return "nothing was asked of it yet, so nobody knows whether it answers"
    return "ago, to a request or to a look for error reports"


APPS = {"status": app}
