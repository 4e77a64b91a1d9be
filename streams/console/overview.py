"""Page 1: how everything stands → the verdict, remarks, figures in tiles, and the curves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from streams import topics
from streams.adapters.group_lag import Lag, read_lag
from streams.cli.database import Connection, rows
from streams.cli.errors import ConfigurationError
from streams.cli.stack import Stack
from streams.cli.status import look
from streams.console import words
from streams.console.history import lag_of, read_ages, read_latency
from streams.console.reading import Unread, beside, ledger_of, screen_rows
from streams.console.slot import Slot, read_slot
from streams.console.workers import WorkerFigures, addresses_of, read_workers
from streams.core.risk import FENCE_NEAR_S
from streams.kafka_access import client_config

Tone = Literal["calm", "warning", "critical", "unread"]
PAGES: Final[Mapping[str, str]] = {
    "tailrace dead": "/dead",
    "tailrace review": "/review",
    "tailrace reconcile": "/reconcile",
    "tailrace audit": "/log?action=audit",
}
"""Where a remark's matter is shown, by the beginning of its command."""
_SLOT_FULL: Final = 0.75


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure."""

    name: str
    value: str
    about: str
    """What it is compared with, or made of."""
    tone: Tone = "calm"


def read_overview(stack: Stack, workers: tuple[str, ...]) -> dict[str, Any]:
    """Everything that page 1 shows without its curves.

    Raises:
        CommandError: the ledger cannot be read; nothing can be said without it.
        psycopg.Error: it went away meanwhile.
    """
    addresses = addresses_of(stack.facts, workers)
    parts = beside(
        slot=lambda: read_slot(stack),
        workers=lambda: read_workers(addresses),
        recent=lambda: _ledger_side(stack),
    )
    figures, remarks, verdict = look(stack)
    shown = [{"remark": remark, "page": page_of(remark.command)} for remark in remarks]
    return {
        "at": figures["at"],
        "verdict": verdict,
        "remarks": shown,
        "tiles": tiles(figures, parts),
    }


def read_curves(stack: Stack) -> dict[str, Any]:
    """What the plots are drawn of; a part that cannot be read says why.

    Raises:
        CommandError: the ledger cannot be read.
        psycopg.Error: it went away meanwhile.
    """
    ends = beside(ends=lambda: _ends(stack))["ends"]
    with ledger_of(stack) as ledger:
        return {
            "latency": read_latency(ledger),
            "ages": read_ages(ledger),
            "lag": {"unread": f"{ends.what}; {ends.fix}"}
            if isinstance(ends, Unread)
            else lag_of({lag.partition: lag.end for lag in ends}, _positions(ledger)),
        }


def _ends(stack: Stack) -> list[Lag]:
    settings = stack.settings
    if not settings.kafka_bootstrap:
        raise ConfigurationError(
            "TAILRACE_KAFKA_BOOTSTRAP is not set", fix="tell this console where the brokers are"
        )
    return read_lag(client_config(settings), topics.EVENTS, settings.group)


def _positions(ledger: Connection) -> list[dict[str, Any]]:
    found = rows(ledger, "status_positions")
    return [each for each in found if each["log_topic"] == topics.EVENTS]


def _ledger_side(stack: Stack) -> dict[str, Any]:
    with ledger_of(stack) as ledger:
        windows = screen_rows(ledger, "last_closed_window")
        return {
            **screen_rows(ledger, "recent_attempts")[0],
            "window": windows[0] if windows else None,
            "sealed": screen_rows(ledger, "sealed_until"),
        }


def page_of(command: str) -> str | None:
    """Where the matter of a remark with that command is shown; None for nowhere."""
    # Whole words: `tailrace deadlines` is no dead letter.
    found = (page for start, page in PAGES.items() if f"{command} ".startswith(f"{start} "))
    return next(found, None)


def tiles(figures: Mapping[str, Any], parts: Mapping[str, Any]) -> list[Tile]:
    """The figures, in the order of the questions that they answer."""
    return [
        _oldest(figures),
        _pending(figures),
        *_recent(parts["recent"]),
        _dead(figures),
        _review(figures),
        *_complete(parts["recent"]),
        _duplicates(parts["workers"], parts["recent"]),
        _slot(parts["slot"]),
    ]


def _oldest(figures: Mapping[str, Any]) -> Tile:
    waiting = figures["waiting"]
    doubt_s = waiting["oldest_doubt_age_s"]
    about = f"in doubt {words.age(doubt_s)} of 23 h" if doubt_s is not None else "none in doubt"
    near = doubt_s is not None and doubt_s >= FENCE_NEAR_S
    tone: Tone = "critical" if near else "calm" if doubt_s is None else "warning"
    return Tile("oldest unsettled", words.age(waiting["oldest_request_age_s"]), about, tone)


def _pending(figures: Mapping[str, Any]) -> Tile:
    states, waiting = figures["meter_events"], figures["waiting"]
    requests = sum(states.get(state, {"count": 0})["count"] for state in ("pending", "ambiguous"))
    units = sum(int(states.get(s, {"units": 0})["units"]) for s in ("pending", "ambiguous"))
    entries = waiting["entries_waiting"] + waiting["entries_unmapped"]
    about = f"{words.count(units)} units; {words.count(entries)} entries wait"
    return Tile("pending requests", words.count(requests), about)


def _recent(recent: dict[str, Any] | Unread) -> list[Tile]:
    if isinstance(recent, Unread):
        return [_unread("published/s", recent), _unread("retries/s", recent)]
    span_s = recent["span_s"]
    return [
        Tile("published/s", words.count(recent["published"] / span_s), "at Stripe, last 5 min"),
        Tile(
            "retries/s",
            words.count(recent["retries"] / span_s),
            f"{words.count(recent['retries'])} of {words.count(recent['attempts'])} attempts",
            "warning" if recent["retries"] else "calm",
        ),
    ]


def _parked(figures: Mapping[str, Any], kind: str) -> tuple[int, float | None]:
    items = [item for item in figures["parked"] if item["kind"] == kind]
    oldest_s = max((item["oldest_age_s"] for item in items), default=None)
    return sum(item["count"] for item in items), oldest_s


def _dead(figures: Mapping[str, Any]) -> Tile:
    number, oldest_s = _parked(figures, "dead")
    about = f"oldest {words.age(oldest_s)}" if number else "none open"
    return Tile("dead letters", words.count(number), about, "warning" if number else "calm")


def _review(figures: Mapping[str, Any]) -> Tile:
    number, oldest_s = _parked(figures, "review")
    about = f"oldest {words.age(oldest_s)}" if number else "nobody is waited for"
    return Tile("review queue", words.count(number), about, "warning" if number else "calm")


def _complete(recent: dict[str, Any] | Unread) -> list[Tile]:
    name = "last closed window"
    if isinstance(recent, Unread):
        return [_unread(name, recent), _unread("proven up to", recent)]
    window, sealed = recent["window"], recent["sealed"]
    proven = [each["minute_us"] for each in sealed if each["minute_us"] is not None]
    until = words.instant(min(proven))[11:16] if proven and len(proven) == len(sealed) else "never"
    audited = Tile("proven up to", until, "sealed by audits, UTC", "calm" if proven else "warning")
    if window is None:
        return [Tile(name, words.NOTHING, "no window has closed yet"), audited]
    units, settled = int(window["units"]), int(window["settled"])
    whole = window["complete"] == window["windows"]
    share = 100 if whole else min(99, settled * 100 // units) if units > 0 else 0
    about = f"{words.count(settled)} of {words.count(units)} units at Stripe"
    return [Tile(name, f"{share} %", about, "calm" if whole else "warning"), audited]


def _duplicates(workers: list[WorkerFigures] | Unread, recent: dict[str, Any] | Unread) -> Tile:
    """The stream drops copies by identity; what Stripe drops by identifier was sent twice."""
    at_stripe = "?" if isinstance(recent, Unread) else words.count(recent["already_there"])
    if isinstance(workers, Unread) or not workers:
        return Tile("duplicates dropped", "?", f"no worker known · Stripe {at_stripe}", "unread")
    silent = sum(bool(worker.silent) for worker in workers)
    stream = words.count(sum(worker.duplicates for worker in workers))
    about = f"stream {stream} · Stripe {at_stripe} (5 min)"
    if silent:
        about += f" · {silent} of {len(workers)} workers silent"
    return Tile("duplicates dropped", stream, about, "warning" if silent else "calm")


def _slot(slot: Slot | Unread) -> Tile:
    if isinstance(slot, Unread):
        return _unread("slot WAL", slot)
    if not slot.there or slot.state in {"", "lost"}:
        return Tile("slot WAL", "LOST", "type `tailrace source guard`", "critical")
    retained, limit = slot.retained_bytes, slot.limit_bytes
    bound = "no limit: the disk is it" if limit is None else f"of {words.size(limit)}"
    full = limit is not None and retained is not None and retained > _SLOT_FULL * limit
    tone: Tone = "critical" if full else "calm" if slot.active else "warning"
    about = bound if slot.active else f"{bound} · nobody reads it"
    return Tile("slot WAL", words.size(retained), about, tone)


def _unread(name: str, why: Unread) -> Tile:
    return Tile(name, "?", why.what, "unread")
