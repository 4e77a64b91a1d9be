"""Settled amounts against Stripe's own sums, per customer, meter and UTC hour.

Stripe's sums follow its answers after a while, so a difference is asked again until a deadline,
and only a cell that did not move in the ledger meanwhile, with no request in doubt, is judged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from streams.adapters.stripe import StripeSink
from streams.cli.audit_report import AuditFinding, StripePart
from streams.core.instant import SECOND_US, wire_text
from streams.settings import Settings
from streams.stripe_access import command_settings

HOUR_S: Final = 3600
PAUSE_S: Final = 1.0


class Hour(NamedTuple):
    """One cell."""

    customer: str
    event_name: str
    hour_s: int


class Settled(NamedTuple):
    """What the ledger says of a cell: recorded units, and requests that may be in it or not."""

    units: int
    doubtful: int


Cells = Mapping[Hour, Settled]
Sums = Mapping[Hour, Decimal]
CellVerdict = Literal["equal", "open", "short", "over"]

NOTHING: Final = Settled(0, 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is asked and how long a difference is asked again."""

    pairs_max: int = 500
    """Pairs of customer and meter, the latest first; each costs one request and its pages."""
    patience_s: float = 20.0


def judge_cell(before: Settled, observed: Decimal, after: Settled) -> CellVerdict:
    """One cell: what moved or is in doubt is only judged when it is equal anyway."""
    if before == after and observed == before.units:
        return "equal"
    if before != after or before.doubtful:
        return "open"
    return "short" if observed < before.units else "over"


async def compare_stripe(
    settings: Settings, read: Callable[[], Cells], span: range, limits: Limits
) -> StripePart:
    """Asks Stripe and compares.

    Args:
        settings: with Stripe's address and key.
        read: the ledger's cells, read anew at each call.
        span: seconds, on UTC hours: asked in whole of every pair, so that usage is seen which
            somebody else wrote into an hour in which the ledger has nothing.
        limits: how much, how long.

    Raises:
        StripeUnreadableError: Stripe was not reached or refused.
    """
    async with StripeSink(command_settings(settings)) as sink:
        meters = {meter.event_name: meter.id for meter in await sink.meters() if meter.active}

        async def sums(customer: str, event_name: str, from_s: int, to_s: int) -> Sums:
            found = await sink.event_summaries(
                customer, meters[event_name], from_s, to_s, grouping="hour"
            )
            return {Hour(customer, event_name, s.start_s): s.value for s in found}

        loop = asyncio.get_running_loop()
        return await _rounds(read, sums, set(meters), span, limits, loop.time)


Ask = Callable[[str, str, int, int], Awaitable[Sums]]


async def _rounds(
    read: Callable[[], Cells],
    ask: Ask,
    known_meters: set[str],
    span: range,
    limits: Limits,
    elapsed_s: Callable[[], float],
) -> StripePart:
    """Asks all pairs once, and those that differ again until they agree or the time is over."""
    ends_s = elapsed_s() + limits.patience_s
    cells = read()
    pairs = _pairs(cells)
    missing = {pair for pair in pairs if pair[1] not in known_meters}
    unasked = {cell for cell in cells if cell[:2] in missing}
    # What was only refused or waits was never at Stripe: it is owed, and told as that.
    billed = {cell[:2] for cell in unasked if cells[cell].units}
    asked = [pair for pair in pairs if pair not in missing][: limits.pairs_max]
    part = StripePart(skipped=len(pairs) - len(missing) - len(asked))
    part.findings += [_no_meter(*pair) for pair in sorted(billed)]
    verdicts: dict[Hour, tuple[CellVerdict, Settled, Decimal]] = {}
    differing = set(asked)
    while differing:
        before = read()
        observed: dict[Hour, Decimal] = {}
        for pair in sorted(differing):
            hours = [cell.hour_s for cell in before if cell[:2] == pair]
            first_s, end_s = min(*hours, span.start), max(*hours, span.stop - HOUR_S) + HOUR_S
            observed.update(await ask(*pair, first_s, end_s))
        after = read()
        for cell in {c for c in (*before, *after) if c[:2] in differing} | set(observed):
            first, second = before.get(cell, NOTHING), after.get(cell, NOTHING)
            seen = observed.get(cell, Decimal(0))
            verdicts[cell] = (judge_cell(first, seen, second), second, seen)
        differing = {cell[:2] for cell, (v, _, _) in verdicts.items() if v in ("short", "over")}
        if elapsed_s() >= ends_s:
            break
        if differing:
            await asyncio.sleep(PAUSE_S)
    for cell, (verdict, settled, seen) in sorted(verdicts.items()):
        if verdict in ("short", "over"):
            part.findings.append(_differs(cell, verdict, settled, seen))
    part.equal = sum(verdict == "equal" for verdict, _, _ in verdicts.values())
    part.open = sum(verdict == "open" for verdict, _, _ in verdicts.values())
    part.open += sum(cell[:2] not in billed for cell in unasked)
    return part


def _pairs(cells: Cells) -> list[tuple[str, str]]:
    """Pairs of customer and event name, the one with the latest hour first."""
    latest: dict[tuple[str, str], int] = {}
    for cell in cells:
        latest[cell[:2]] = max(cell.hour_s, latest.get(cell[:2], 0))
    return sorted(latest, key=lambda pair: (-latest[pair], pair))


def _no_meter(customer: str, event_name: str) -> AuditFinding:
    text = f"{customer} {event_name}: settled, but Stripe has no active meter of that event name"
    return AuditFinding("stripe", f"{customer} {event_name}", text, lost=1)


def _differs(cell: Hour, verdict: CellVerdict, settled: Settled, seen: Decimal) -> AuditFinding:
    subject = f"{cell.customer} {cell.event_name} {wire_text(cell.hour_s * SECOND_US)}"
    text = f"{subject}: settled {settled.units}, Stripe says {seen}"
    if verdict == "short":
        return AuditFinding("stripe", subject, text, lost=1)
    return AuditFinding("stripe", subject, f"{text}; does anyone else write there?", double=1)
