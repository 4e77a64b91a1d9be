"""Every GET: what was asked → what is read → a page."""

from datetime import datetime
from itertools import groupby
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from streams.cli.database import decision_rows, ledger_rows, reconcile_rows
from streams.cli.options import read_instant
from streams.cli.parked_show import read_item
from streams.cli.pauses import read_pauses
from streams.cli.queues import read_queue, rule_of
from streams.cli.reconcile_plan import side_of
from streams.cli.reconcile_run import Asked, reach_of
from streams.cli.trace import read_trace
from streams.cli.trace_show import document, steps
from streams.console.overview import read_curves, read_overview
from streams.console.reading import ledger_of, screen_rows
from streams.console.visit import Answer, Page, Visit, missing
from streams.core.instant import DAY_US, SECOND_US, from_us

LIST_MAX: Final = 200
READINGS_SHOWN: Final = 3


def now(visit: Visit) -> Answer:
    """Page 1: is money at risk?"""
    return Page("now.html", read_overview(visit.stack, visit.console.workers))


def curves(visit: Visit) -> Response:
    """What the plots of page 1 are drawn of."""
    return JSONResponse(read_curves(visit.stack))


def trace(visit: Visit) -> Answer:
    """One event's journey."""
    tenant, key = visit.asked("tenant"), visit.asked("key")
    if tenant is None or key is None:
        return Page("trace.html", {"tenant": tenant or "", "key": key or "", "found": None})
    said: list[str] = []
    source, known = read_trace(visit.stack, tenant, key, said.append)
    found = [{"journey": each, "steps": steps(each), "document": document(each)} for each in known]
    values = {"tenant": tenant, "key": key, "source": source, "said": said, "found": found}
    return Page("trace.html", values, 200 if found else 404)


def dead(visit: Visit) -> Answer:
    """Dead letters by cause, and one by one."""
    tenant = visit.asked("tenant")
    with ledger_of(visit.stack) as ledger:
        causes = screen_rows(ledger, "dead_causes")
        codes = {each["cause"] for each in decision_rows(ledger, "redrive_causes")}
        queue = read_queue(ledger, "dead", tenant, LIST_MAX)
    values = {"queue": queue, "tenant": tenant or "", "causes": causes, "redrivable": codes}
    return Page("dead.html", values | {"rule_of": rule_of})


def dead_item(visit: Visit) -> Answer:
    """One dead letter with its evidence."""
    return _item(visit, "dead")


def review(visit: Visit) -> Answer:
    """What waits for a decision, by who produced it."""
    tenant = visit.asked("tenant")
    with ledger_of(visit.stack) as ledger:
        queue = read_queue(ledger, "review", tenant, LIST_MAX)
    by_source = sorted(queue.items, key=lambda item: (item["source"] or "", item["parked_id"]))
    producers = [
        (source, list(items))
        for source, items in groupby(by_source, key=lambda item: item["source"] or "unknown")
    ]
    values = {"queue": queue, "tenant": tenant or "", "producers": producers, "rule_of": rule_of}
    return Page("review.html", values)


def review_item(visit: Visit) -> Answer:
    """One item, its versions, and what each decision would do."""
    return _item(visit, "review")


def _item(visit: Visit, kind: str) -> Answer:
    shown = read_item(kind, visit.stack, visit.item())
    return Page("item.html", {"shown": shown, "item": shown.document(), "kind": kind})


def windows(visit: Visit) -> Answer:
    """Windows with what they came to."""
    which = {"tenant": visit.asked("tenant"), "metric": visit.asked("metric"), "limit": LIST_MAX}
    with ledger_of(visit.stack) as ledger:
        found = screen_rows(ledger, "windows", which)
        waiting = screen_rows(ledger, "tenants_waiting")
        now_us = int(ledger_rows(ledger, "now_us")[0][0])
    for each in waiting:
        each["age_s"] = (now_us - each["oldest_us"]) / SECOND_US
    values = {"windows": found, "waiting": waiting, "limit": LIST_MAX}
    return Page("windows.html", values | {name: which[name] or "" for name in ("tenant", "metric")})


def statement(visit: Visit) -> Answer:
    """What a tenant's usage of a span came to; by default this month's."""
    tenant = visit.asked("tenant")
    if tenant is None:
        raise missing("tenant: whose statement?", "/statement?tenant=acme")
    with ledger_of(visit.stack) as ledger:
        now_us = int(ledger_rows(ledger, "now_us")[0][0])
        from_us, to_us = _span(visit, now_us)
        which: dict[str, Any] = {"tenant": tenant, "from_us": from_us, "to_us": to_us}
        lines = screen_rows(ledger, "statement", which)
        parked = screen_rows(ledger, "statement_parked", which)
    return Page("statement.html", {**which, "lines": lines, "parked": parked})


def _span(visit: Visit, now_us: int) -> tuple[int, int]:
    today = from_us(now_us)
    month = datetime(today.year, today.month, 1, tzinfo=today.tzinfo)
    given_from, given_to = visit.asked("from"), visit.asked("to")
    start = _day("from", given_from) if given_from else int(month.timestamp()) * SECOND_US
    end = _day("to", given_to) if given_to else now_us
    if given_to and "T" not in given_to:
        end += DAY_US  # a day is in it to its end, an instant is not
    if end <= start:
        raise missing("to: lies before from", "exchange them")
    return start, end


def _day(name: str, text: str) -> int:
    return read_instant(name, text if "T" in text else f"{text}T00:00:00Z", "2026-12-01")


def reconcile(visit: Visit) -> Answer:
    """What waits for Stripe's sums, as of the last readings; Stripe is not asked by a page."""
    with ledger_of(visit.stack) as ledger:
        limits = reconcile_rows(ledger, "limits")[0]
        asked = Asked(None, None, reach_of(limits["now_us"])).values
        cells = dict(side_of(each) for each in reconcile_rows(ledger, "cells", asked))
        receipts = reconcile_rows(ledger, "receipts", asked)
        reads = reconcile_rows(ledger, "reads")[0]["reads"]
        lines = [
            {
                "key": key,
                "side": side,
                "readings": reconcile_rows(ledger, "readings", key.values)[-READINGS_SHOWN:],
            }
            for key, side in sorted(cells.items(), key=lambda each: (each[0].start_s, each[0]))
            if side.needed
        ][:LIST_MAX]
    values = {"lines": lines, "cells": len(cells), "receipts": receipts, "reads": reads}
    return Page("reconcile.html", {**values, "reads_max": visit.stack.settings.reconcile_reads})


def log(visit: Visit) -> Answer:
    """Who did what, and what is paused."""
    which = {"actor": visit.asked("actor"), "action": visit.asked("action"), "limit": LIST_MAX}
    with ledger_of(visit.stack) as ledger:
        acts = screen_rows(ledger, "acts", which)
        pauses = read_pauses(ledger)
    values = {"acts": acts, "pauses": pauses, "limit": LIST_MAX}
    return Page("log.html", values | {name: which[name] or "" for name in ("actor", "action")})
