"""How everything stands → remarks, each with the command to type, and whether money is at risk.

In: `Standing`. Out: remarks, the worst first, and one verdict. Severity says what becomes of the
money if nobody does anything: `critical` is lost, doubled or on no invoice soon or already;
`warning` waits, safely and for ever; `info` is worth knowing.
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from streams.core.capture import capture_remarks
from streams.core.instant import age_text
from streams.core.live_meter import ABSENT, CHECKS, MEANING
from streams.core.remark import ORDER, Remark, Severity
from streams.core.remedy import remedy
from streams.core.standing import Halt, Parked, Standing

HOUR_S: Final = 3_600
FENCE_S: Final = 23 * HOUR_S
"""Doubt that is older than this can only be ended by Stripe's sums."""
FENCE_NEAR_S: Final = 20 * HOUR_S
DEADLINE_NEAR_S: Final = HOUR_S
"""One outage may last so long: what stands still with less left will miss its invoice."""
FAILURES_DOWN: Final = 3
"""So many in a row are no single request's own trouble."""
IDLE_S_MAX: Final = 300
NAMED: Final = 3
"""So many tenants stand in a remark by name."""
AUDIT_AGE_S_MAX: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to the one question that everybody has."""

    at_risk: Literal["yes", "not yet", "no"]
    """`not yet`: amounts wait for somebody, and keep."""
    text: str


def verdict(remarks: tuple[Remark, ...]) -> Verdict:
    """Whether money is at risk."""
    worst = [remark for remark in remarks if remark.severity == "critical"]
    waiting = [remark for remark in remarks if remark.severity == "warning"]
    counted = "1 thing waits" if len(waiting) == 1 else f"{len(waiting)} things wait"
    if worst:
        # What merely waits is no risk, and is not counted among them.
        more = f"; and {len(worst) - 1} more like it" if len(worst) > 1 else ""
        besides = f"; besides, {counted} for somebody" if waiting else ""
        return Verdict("yes", f"YES: {worst[0].text}{more}{besides}")
    if waiting:
        return Verdict("not yet", f"not yet: {counted} for somebody")
    return Verdict("no", "no: nothing waits for anybody")


def remarks(standing: Standing) -> tuple[Remark, ...]:
    """What needs a person, the worst first."""
    found = [remark for rule in RULES for remark in rule(standing)]
    return tuple(sorted(found, key=lambda remark: ORDER.index(remark.severity)))


def _urgent(standing: Standing) -> bool:
    """Whether what stands still now misses its invoice or becomes a doubt before long."""
    left_s, doubt_s = standing.waiting.deadline_in_s, standing.waiting.oldest_doubt_age_s
    return (left_s is not None and left_s < DEADLINE_NEAR_S) or (
        doubt_s is not None and doubt_s >= FENCE_NEAR_S
    )


def _still(standing: Standing) -> Severity:
    return "critical" if _urgent(standing) else "warning"


def is_down(standing: Standing) -> bool:
    """Whether Stripe takes nothing from anybody, as far as the last attempts tell."""
    return standing.sink.refused or standing.sink.failures >= FAILURES_DOWN


def _halts(standing: Standing) -> Iterator[Remark]:
    for halt in standing.halts:
        yield Remark(
            "critical",
            "halted",
            f"PUBLISHING STANDS STILL: {halt_text(halt)}",
            "tailrace ledger adopt" if halt.kind == "ledger_went_back" else "tailrace audit",
        )


def halt_text(halt: Halt) -> str:
    """Why nothing is sent, in words where the kind is known; its detail is JSON."""
    try:
        seen = msgspec.json.decode(halt.detail, type=dict[str, Any])
    except msgspec.DecodeError:
        seen = {}
    if halt.kind == "ledger_went_back" and {"topic", "partition", "stored", "acknowledged"} <= {
        *seen
    }:
        return (
            f"the ledger went back: of {seen['topic']} partition {seen['partition']} it holds "
            f"records up to {seen['stored']}, and a worker was told {seen['acknowledged']}"
        )
    if halt.kind == "ledger_went_back" and {"attempt_id", "started_at"} <= {*seen}:
        return (
            f"the ledger went back: it has not attempt {seen['attempt_id']} of "
            f"{seen['started_at']}, which a worker made"
        )
    return f"{halt.kind}, {halt.detail}"


def _sink(standing: Standing) -> Iterator[Remark]:
    sink = standing.sink
    if not is_down(standing):
        return
    since = "" if sink.failing_s is None else f" for {age_text(sink.failing_s)}"
    what = "Stripe refuses the key" if sink.refused else "Stripe is down"
    text = f"{what}{since} ({sink.cause or 'no answer'}); {_doubt(standing)}"
    # Nothing that is typed here brings Stripe back: what is worth knowing is what will miss it.
    command = "tailrace doctor" if sink.refused else "tailrace deadlines"
    yield Remark(_still(standing), "sink_down", text, command)


def _doubt(standing: Standing) -> str:
    doubt_s = standing.waiting.oldest_doubt_age_s
    if doubt_s is None:
        return "nothing is in doubt, amounts wait"
    return f"the oldest doubt is {age_text(doubt_s)} old; at 23 h only Stripe's sums can end it"


def _fence(standing: Standing) -> Iterator[Remark]:
    doubt_s = standing.waiting.oldest_doubt_age_s
    if doubt_s is not None and doubt_s >= FENCE_NEAR_S and not is_down(standing):
        yield Remark("critical", "fence_near", _doubt(standing), "tailrace reconcile")


def _idle(standing: Standing) -> Iterator[Remark]:
    idle_s = standing.waiting.idle_s
    # Why nobody takes them is said by another remark then.
    stopped = standing.halts or standing.pauses or standing.waiting.cells_to_compare
    stopped = stopped or is_down(standing)
    if idle_s is not None and idle_s > IDLE_S_MAX and not stopped:
        text = f"amounts are due since {age_text(idle_s)} and no worker takes them"
        yield Remark(_still(standing), "idle", text, "tailrace worker")


def _pauses(standing: Standing) -> Iterator[Remark]:
    for pause in standing.pauses:
        units = waiting_text(pause.units_waiting, pause.units_unmapped)
        yield Remark(
            _still(standing),
            "paused",
            f"PUBLISHING IS PAUSED: {pause.scope} {pause.subject or ''} by {pause.by}: "
            f"{pause.reason}; {units} wait",
            "tailrace pause list",
        )


def waiting_text(units: str, unmapped: str) -> str:
    """What a pause holds, and how much of it its end alone would not send."""
    if unmapped == "0":
        return f"{units} units"
    share = "all" if unmapped == units else unmapped
    return f"{units} units ({share} also unmapped)"


def _audits(standing: Standing) -> Iterator[Remark]:
    for audit in standing.audits:
        if audit.lost or audit.double:
            text = f"the last audit of {audit.source} found lost {audit.lost} · double "
            yield Remark("critical", "audit_unequal", f"{text}{audit.double}", "tailrace audit")
        elif audit.age_s > AUDIT_AGE_S_MAX:
            text = f"nothing is proven of {audit.source} since {age_text(audit.age_s)}"
            yield Remark("warning", "audit_old", text, "tailrace audit")
    if standing.positions and not standing.audits:
        yield Remark("info", "audit_never", "nothing is proven yet", "tailrace audit")


def _findings(standing: Standing) -> Iterator[Remark]:
    for finding in standing.findings:
        if finding.kind == "superseded_recorded":
            text = f"{finding.count} requests were replaced and recorded after all: billed twice?"
            text += " `tailrace findings clear` once that is corrected"
            yield Remark("critical", "twice", text, "tailrace reconcile")
        else:
            text = f"{finding.count} contradictions wait for somebody ({finding.kind})"
            yield Remark("warning", "contradicted", text, "tailrace findings list")


def _meters(standing: Standing) -> Iterator[Remark]:
    for meter in standing.meters:
        means = MEANING.get(meter.kind, "what is sent to it is not billed as it must be")
        yield Remark(
            "warning" if meter.kind in ABSENT else "critical",
            "meter_wrong",
            f"meter {meter.event_name} at Stripe: {meter.rule}; {means}",
            f"tailrace doctor {CHECKS.get(meter.kind, '')}".rstrip(),
        )


def _held(standing: Standing) -> Iterator[Remark]:
    for held in standing.held:
        text = f"partition {held.partition} is held: {held.why}"
        yield Remark("warning", "held", text, "tailrace held list")


def _capture(standing: Standing) -> Iterator[Remark]:
    yield from capture_remarks(standing.capture, standing.canary_under_way_s)


def _parked(standing: Standing) -> Iterator[Remark]:
    for item in standing.parked:
        yield _dead(item) if item.kind == "dead" else _review(item)


def _review(item: Parked) -> Remark:
    text = f"{item.count} {item.reason}{_of(item)} {_wait(item.count)} for a decision"
    return Remark("warning", "review", text, "tailrace review list")


def _dead(item: Parked) -> Remark:
    why = item.rule or item.cause
    if item.rules > 1:
        why = f"{why}, and {item.rules - 1} other {'rule' if item.rules == 2 else 'rules'}"
    text = f"{item.count} dead{_of(item)}, {item.reason}{f' ({why})' if why else ''}"
    ends = remedy(item.reason, item.cause, item.outcome)
    # Offered where the redrive ends it once its remedy is done, and nothing has to be proven.
    command = "tailrace dead list"
    if item.reason == "refused" and item.by_code and item.outcome != "too_old":
        cause = shlex.quote(item.cause or "")
        command = f'tailrace dead redrive --cause {cause} --reason "…"'
    return Remark("warning", "dead", f"{text}: {ends}", command)


def _of(item: Parked) -> str:
    return f" of {item.metric}" if item.metric else ""


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _unmapped(standing: Standing) -> Iterator[Remark]:
    if not standing.waiting.entries_unmapped:
        return
    text, command = "usage is held for unmapped tenants", "tailrace customers list"
    named = standing.unmapped[:NAMED]
    if named:
        text += ": " + ", ".join(f"{each.tenant_id} ({each.units} units)" for each in named)
        command = f"tailrace customers map {shlex.quote(named[0].tenant_id)} cus_…"
    more = standing.waiting.tenants_unmapped - len(named)
    if named and more > 0:
        text += f" and {more} more, all named by `tailrace customers list`"
    yield Remark("warning", "unmapped", text, command)


def _counts(standing: Standing) -> Iterator[Remark]:
    waiting = standing.waiting
    listed: tuple[tuple[int, Severity, str, str, str], ...] = (
        (
            waiting.entries_overdue, "critical", "overdue",
            "usage missed its invoice", "tailrace carry list",
        ),
        (
            waiting.lanes_paused, "warning", "lanes_stopped",
            f"{waiting.lanes_paused} lanes are stopped", "tailrace pause list",
        ),
        (
            waiting.levels_held, "warning", "levels_held",
            f"{waiting.levels_held} series are held", "tailrace findings list",
        ),
        (
            waiting.cells_to_compare, "warning", "to_compare",
            f"{waiting.cells_to_compare} cells wait until Stripe's sums were compared with the "
            "ledger that was adopted", "tailrace reconcile",
        ),
        (
            waiting.proposals_open, "warning", "proposals",
            f"{waiting.proposals_open} corrections wait for another login",
            "tailrace correct list",
        ),
    )  # fmt: skip
    for count, severity, name, text, command in listed:
        if count:
            yield Remark(severity, name, text, command)


RULES: Final[tuple[Callable[[Standing], Iterator[Remark]], ...]] = (
    _halts, _audits, _findings, _meters, _sink, _fence, _idle, _pauses, _held, _capture, _parked,
    _unmapped, _counts,
)  # fmt: skip
"""Asked in this order, which is the order of remarks of the same severity."""
