"""One run of reconciling: the ledger's cells, Stripe's sums of them, the ledger's cells again.

In: which cells are asked about. Out: a line for every cell that is not simply equal, and with
`settle` what acting on a proven one came to.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import msgspec

from streams.adapters.stripe import StripeSink
from streams.cli.database import Connection, login_of, reconcile_rows
from streams.cli.reconcile_plan import (
    NOTHING_KNOWN,
    Line,
    Side,
    plain,
    rejection,
    settlement,
    side_of,
)
from streams.cli.reconcile_stripe import (
    DAY_S,
    CellKey,
    Grain,
    LedgerSide,
    Observed,
    Pair,
    ReadBudget,
    day_of,
    observe,
)
from streams.core.instant import SECOND_US, wire_text
from streams.core.meter_event import Origin
from streams.core.reconcile import Reading, Settle, TakeBack, decide
from streams.settings import Settings
from streams.stripe_access import command_settings

REACH_DAYS: Final = 35
"""Stripe takes usage dated so far back."""


def reach_of(now_us: int) -> range:
    """Whole UTC days in seconds: all that Stripe still takes usage for, today included."""
    today_s = day_of(now_us)
    return range(today_s - REACH_DAYS * DAY_S, today_s + DAY_S)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for; `span` in seconds, on UTC days."""

    customer: str | None
    event_name: str | None
    span: range

    @property
    def values(self) -> dict[str, Any]:
        """Parameters of the ledger's statements."""
        return {
            "customer": self.customer,
            "event_name": self.event_name,
            "from_us": self.span.start * SECOND_US,
            "to_us": self.span.stop * SECOND_US,
        }


@dataclass
class Comparison:
    """Everything one run found."""

    asked: Asked
    at_us: int
    still_us: int
    reads: int = 0
    equal_cells: int = 0
    lines: list[Line] = field(default_factory=list)
    not_asked: list[Pair] = field(default_factory=list)
    no_meter: list[Pair] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    """Cells that were settled before this run."""

    @property
    def findings(self) -> int:
        """What a person has to look at."""
        return sum(line.is_finding for line in self.lines) + len(self.no_meter)

    def document(self) -> dict[str, Any]:
        """The JSON report."""
        return {
            "at": wire_text(self.at_us),
            "from": wire_text(self.asked.span.start * SECOND_US),
            "to": wire_text(self.asked.span.stop * SECOND_US),
            "still_s": self.still_us // SECOND_US,
            "reads": self.reads,
            "equal_cells": self.equal_cells,
            "cells": [line.document() for line in self.lines],
            "not_asked": [pair._asdict() for pair in self.not_asked],
            "no_meter": [pair._asdict() for pair in self.no_meter],
            "settled_before": [
                {"at": wire_text(r["at_us"]), "start": wire_text(r["start_us"])}
                | {name: value for name, value in r.items() if not name.endswith("_us")}
                for r in self.receipts
            ],
            "ok": not self.findings,
        }


def origin_of(settings: Settings, ledger_id: str) -> Origin:
    """Who sends, for the identifiers of net meter events."""
    return Origin(settings.stripe_account, settings.livemode, ledger_id)


def compare_cells(
    ledger: Connection, settings: Settings, asked: Asked, limits: Mapping[str, Any]
) -> Comparison:
    """Compares, and notes what Stripe said.

    Args:
        ledger: read before and after Stripe, so that what moves meanwhile is not judged.
        settings: how Stripe is reached, and how often.
        asked: which cells.
        limits: the row of the statement `limits`.

    Raises:
        StripeUnreadableError: Stripe was not reached or refused.
        psycopg.Error: the ledger refused or went away.
    """
    receipts = reconcile_rows(ledger, "receipts", asked.values)
    before = _cells(ledger, asked)
    lanes = [
        Pair(r["customer"], r["event_name"]) for r in reconcile_rows(ledger, "lanes", asked.values)
    ]
    side = LedgerSide(
        {key: known.figures.recorded for key, known in before.items()},
        frozenset(key for key, known in before.items() if known.needed),
        {name: length // SECOND_US for name, length in limits["cell_us"].items()},
    )
    reads_left = settings.reconcile_reads - int(reconcile_rows(ledger, "reads")[0]["reads"])
    budget = ReadBudget(max(0, reads_left), settings.reconcile_reads_per_s, time.monotonic)
    observed, no_meter = asyncio.run(
        _observe(settings, _ordered(lanes, before), asked.span, side, budget)
    )
    after = _cells(ledger, asked)
    comparison = Comparison(
        asked, limits["now_us"], limits["still_us"], budget.used, receipts=receipts
    )
    comparison.not_asked, comparison.no_meter = observed.not_asked, no_meter
    comparison.equal_cells = observed.equal_cells
    _note(ledger, observed.sums, after, budget.used)
    for key, value in sorted(observed.sums.items(), key=lambda item: (item[0].start_s, item[0])):
        known = _judged(before.get(key, NOTHING_KNOWN), after.get(key, NOTHING_KNOWN))
        if value == known.figures.recorded and not known.needed and not known.figures.in_flight:
            comparison.equal_cells += key in after
            continue
        readings = [r for _, r in _readings(ledger, key)]
        decision = decide(known.figures, readings, comparison.still_us)
        comparison.lines.append(Line(key, known, value, decision))
    return comparison


def _judged(before: Side, after: Side) -> Side:
    """The ledger's side after Stripe was read; one that moved meanwhile is no basis."""
    if before == after:
        return after
    moved = replace(after.figures, unready=after.figures.unready or "it moved while it was read")
    return replace(after, figures=moved)


def _ordered(lanes: list[Pair], cells: Mapping[CellKey, Side]) -> list[Pair]:
    """Pairs with something in doubt first, then by their latest hour."""
    rank: dict[Pair, tuple[bool, int]] = dict.fromkeys(lanes, (False, 0))
    for key, side in cells.items():
        doubtful, latest_s = rank.get(key.pair, (False, 0))
        rank[key.pair] = (doubtful or side.needed, max(latest_s, key.start_s))
    return sorted(rank, key=lambda pair: (not rank[pair][0], -rank[pair][1], pair))


async def _observe(
    settings: Settings, pairs: list[Pair], span: range, side: LedgerSide, budget: ReadBudget
) -> tuple[Observed, list[Pair]]:
    async with StripeSink(command_settings(settings)) as sink:
        meters = {meter.event_name: meter.id for meter in await sink.meters() if meter.active}

        async def ask(pair: Pair, from_s: int, to_s: int, grain: Grain) -> Mapping[int, Decimal]:
            meter_id = meters[pair.event_name]
            found = await sink.event_summaries(pair.customer, meter_id, from_s, to_s, grain)
            return {summary.start_s: summary.value for summary in found}

        there = [pair for pair in pairs if pair.event_name in meters]
        used = {key.pair for key in (*side.recorded, *side.needed)}
        no_meter = [p for p in pairs if p.event_name not in meters and p in used]
        return await observe(there, span, side, ask, budget), no_meter


def settle(ledger: Connection, line: Line, decision: Settle, origin: Origin, reason: str) -> str:
    """Settles one proven cell in one transaction: settled, carried or moved.

    Raises:
        UnsendableMeterEventError: Stripe could not take the missing amount.
        psycopg.Error: the ledger refused or went away.
    """
    reading_ids = [reading_id for reading_id, _ in _readings(ledger, line.key)]
    dated = reconcile_rows(ledger, "dated", {"events": list(decision.absent)})[0]["timestamp_s"]
    told = settlement(line, decision, origin, reading_ids, dated)
    return _act(ledger, "settle_cell", told, reason)


def take_back(ledger: Connection, line: Line, decision: TakeBack, reason: str) -> str:
    """Takes back what Stripe rejected and did not name, in one transaction: taken_back or moved.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    reading_ids = [reading_id for reading_id, _ in _readings(ledger, line.key)]
    return _act(ledger, "take_back_unnamed", rejection(line, decision, reading_ids), reason)


def _act(ledger: Connection, statement: str, told: dict[str, Any], reason: str) -> str:
    """Tells the ledger what was proven of a cell; what it came to."""
    values = {
        "told": msgspec.json.encode(told).decode(),
        "reason": reason,
        "actor": login_of(ledger),
    }
    return str(reconcile_rows(ledger, statement, values)[0]["outcome"])


def _note(
    ledger: Connection, sums: Mapping[CellKey, Decimal], cells: Mapping[CellKey, Side], reads: int
) -> None:
    """Notes the sums that prove something now or later: of cells in doubt, and unequal ones."""
    noted = [
        {**key.values, "value": plain(value)}
        for key, value in sums.items()
        if (side := cells.get(key, NOTHING_KNOWN)).needed
        or side.figures.in_flight
        or value != side.figures.recorded
    ]
    if reads:
        reconcile_rows(
            ledger,
            "note_readings",
            {"rows": msgspec.json.encode(noted).decode(), "reads": reads},
        )


def _readings(ledger: Connection, key: CellKey) -> list[tuple[int, Reading]]:
    return [
        (r["reading_id"], Reading(r["at_us"], Decimal(r["value"])))
        for r in reconcile_rows(ledger, "readings", key.values)
    ]


def _cells(ledger: Connection, asked: Asked) -> dict[CellKey, Side]:
    return dict(side_of(row) for row in reconcile_rows(ledger, "cells", asked.values))
