"""A cell of the ledger and Stripe's sum of it → one line: what it is and what follows."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, assert_never

from streams.cli.document import instant_text
from streams.cli.reconcile_stripe import CellKey
from streams.core.instant import SECOND_US, wire_text
from streams.core.meter_event import Cell, MeterEvent, Origin, freeze_proven
from streams.core.reconcile import (
    CellClass,
    Decision,
    Doubtful,
    Figures,
    Nothing,
    Report,
    Settle,
    TakeBack,
    Wait,
    compare,
)


@dataclass(frozen=True, slots=True)
class Side:
    """The ledger's row of one cell."""

    figures: Figures
    waiting_entries: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why it is in doubt, as noted."""

    @property
    def needed(self) -> bool:
        """Whether it waits for Stripe's sums."""
        return bool(self.figures.doubtful or self.waiting_entries or self.reasons)


NOTHING_KNOWN = Side(Figures(0))


_UNREADY = {
    True: "the workers still tell what the ledger forgot",
    False: "it is not over yet, and compared as a whole",
}


def plain(value: Decimal) -> str:
    """A sum as people write it: exact, without zeros behind the point."""
    return f"{value.normalize():f}"


def side_of(row: Mapping[str, Any]) -> tuple[CellKey, Side]:
    """A row of the statement `cells`."""
    key = CellKey(
        row["customer"],
        row["event_name"],
        row["start_us"] // SECOND_US,
        row["end_us"] // SECOND_US,
    )
    figures = Figures(
        recorded=row["recorded"],
        doubtful=tuple(Doubtful(*pair) for pair in row["doubtful"]),
        in_flight=row["in_flight"],
        waiting=row["waiting"],
        waiting_negative=row["waiting_negative"],
        reported=tuple(Doubtful(*pair) for pair in row["reported"]),
        adopted=any(reason.startswith("ledger_adopted") for reason in row["reasons"]),
        noted=bool(row["reasons"]),
        unready="" if row["ready"] else _UNREADY[row["is_over"]],
        quiet_from_us=row["quiet_from_us"],
        late=row["is_late"],
    )
    return key, Side(figures, tuple(row["waiting_entries"]), tuple(row["reasons"]))


@dataclass
class Line:
    """One cell in the report."""

    key: CellKey
    side: Side
    observed: Decimal
    decision: Decision
    outcome: str | None = None
    """What acting on it came to: settled, carried, moved; None where nothing was done."""

    @property
    def cell_class(self) -> CellClass:
        """How both sides compare."""
        return compare(self.side.figures, self.observed)

    @property
    def is_finding(self) -> bool:
        """Whether a person has to look."""
        return isinstance(self.decision, Report)

    @property
    def subject(self) -> str:
        """The cell in words."""
        key = self.key
        return f"{key.customer} {key.event_name} {wire_text(key.start_s * SECOND_US)}"

    @property
    def next_step(self) -> str:
        """What follows, in words."""
        if self.outcome is not None:
            return _OUTCOMES[self.outcome]
        match self.decision:
            case Nothing():
                return ""
            case Wait(why, until_us):
                return why if until_us is None else f"{why}: not before {wire_text(until_us)}"
            case Settle(net_units=0, adopted_units=adopted):
                return "all of it is there" + (f", {adopted} adopted" if adopted else "")
            case Settle(net_units=net, adopted_units=adopted, late=late):
                there = f", {adopted} are there and adopted" if adopted else ""
                return f"{_LATE if late else _SENT}{there}".format(net)
            case TakeBack(requests, units):
                return (
                    f"take {len(requests)} requests of {units} units back: as much was rejected, "
                    "and nobody named which"
                )
            case Report(cell_class, by):
                return _report(cell_class, by, self.side)
            case _ as unreachable:
                assert_never(unreachable)

    def document(self) -> dict[str, Any]:
        """As it stands in the JSON report; amounts as text, so that no reader rounds them."""
        figures, decision = self.side.figures, self.decision
        until_us = decision.until_us if isinstance(decision, Wait) else None
        return {
            "customer": self.key.customer,
            "event_name": self.key.event_name,
            "start": wire_text(self.key.start_s * SECOND_US),
            "end": wire_text(self.key.end_s * SECOND_US),
            "class": self.cell_class,
            "recorded": str(figures.recorded),
            "stripe": plain(self.observed),
            "in_doubt": str(sum(event.units for event in figures.doubtful)),
            "held": str(figures.waiting),
            "reasons": list(self.side.reasons),
            "decision": _NAMES[type(decision)],
            "net_units": str(decision.net_units) if isinstance(decision, Settle) else None,
            "not_before": instant_text(until_us),
            "next": self.next_step,
            "outcome": self.outcome,
        }


_NAMES = {
    Nothing: "nothing",
    Wait: "wait",
    Settle: "settle",
    TakeBack: "take_back",
    Report: "report",
}

_SENT = "send {} as one meter event"
_LATE = "{} are too late for their invoice and would wait in `tailrace carry list`"

_OUTCOMES = {
    "taken_back": "taken back: dead letters now, `tailrace dead redrive` sends them anew",
    "settled": "settled",
    "carried": "settled: what is not there is too late for its invoice, and waits as carry",
    "moved": "not settled: the cell changed meanwhile; reconcile again",
}


_STANDS: Final = {
    "taken_back": "taken back", "settled": "settled", "carried": "settled", "moved": "not settled",
    "nothing": "in order", "wait": "wait", "settle": "to settle", "take_back": "to take back",
    "report": "for a person",
}  # fmt: skip


def summary(equal: int, lines: Collection[Line], findings: int) -> str:
    """The last line of the report: cells that are not equal by where they stand."""
    stands = Counter(_STANDS[line.outcome or _NAMES[type(line.decision)]] for line in lines)
    parts = ", ".join(f"{count} {name}" for name, count in stands.items())
    named = f" ({parts})" if parts else ""
    return f"{equal} cells equal · {len(lines)} not{named} · {findings} findings"


def _report(cell_class: CellClass, by: Decimal, side: Side) -> str:
    text = plain(by)
    if cell_class == "higher":
        return f"+{text} that no request here explains: does anyone else write there?"
    if side.reasons:
        return f"{text}, and {side.reasons[0]}: Stripe rejected requests that nobody named"
    return f"{text}: Stripe lacks what it confirmed; are there error reports?"


def settlement(
    line: Line, decision: Settle, origin: Origin, reading_ids: Sequence[int], dated_s: int | None
) -> dict[str, Any]:
    """What the ledger is told to settle a cell, with the evidence.

    Args:
        line: the cell.
        decision: what was proven.
        origin: who sends.
        reading_ids: of the readings that prove it, oldest first.
        dated_s: the latest date among the requests that are superseded, None where there is none.

    Raises:
        UnsendableMeterEventError: Stripe could not take the net amount.
    """
    key, figures = line.key, line.side.figures
    cell = Cell(key.customer, key.event_name, key.start_s * SECOND_US, key.end_s * SECOND_US)
    timestamp_s = key.end_s - 1 if dated_s is None else dated_s

    def request(value: int, what: str) -> dict[str, Any] | None:
        if value == 0:
            return None
        proof = f"{what} {reading_ids[-1]}"
        return _request(freeze_proven(origin, cell, value, proof, timestamp_s))

    return {
        **key.values,
        "recorded": figures.recorded,
        "doubtful": [event.meter_event_id for event in figures.doubtful],
        "waiting_entries": list(line.side.waiting_entries),
        "present": list(decision.present),
        "absent": list(decision.absent),
        "adopted_units": decision.adopted_units,
        "net_units": decision.net_units,
        "adopted_request": request(decision.adopted_units, "adopted"),
        "net_request": request(decision.net_units, "net"),
        "evidence": _evidence(line, reading_ids),
    }


def rejection(line: Line, decision: TakeBack, reading_ids: Sequence[int]) -> dict[str, Any]:
    """What the ledger is told to take back of a cell, with the evidence."""
    return {
        **line.key.values,
        "recorded": line.side.figures.recorded,
        "requests": list(decision.requests),
        "units": decision.units,
        "evidence": _evidence(line, reading_ids),
    }


def _evidence(line: Line, reading_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "stripe": plain(line.observed),
        "readings": list(reading_ids),
        "reasons": list(line.side.reasons),
    }


def _request(event: MeterEvent) -> dict[str, Any]:
    return {
        "value": str(event.value),
        "timestamp_s": event.timestamp_s,
        "identifier": event.identifier,
        "payload_hash": event.payload_hash,
    }
