"""A finding as the ledger keeps it → what it is about, where to look, what clearing it does.

In: its kind, subject and evidence. Out: texts, for every kind, also those of a newer release.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streams.core.live_meter import CHECKS, MEANING

_LEVEL: Final = "level_"
_METER: Final = "meter_"
_LOOK: Final[Mapping[str, str]] = {
    "superseded_recorded": "tailrace reconcile",
    "error_report_unreadable": "tailrace rejections list",
    "error_report_of_unknown_request": "tailrace rejections list",
    "error_report_without_cells": "tailrace rejections list",
}
_SAYS: Final[Mapping[str, str]] = {
    "entry_differs": "a copy of this identity came with another amount; the first one counts",
    "cell_differs": "a minute was told twice, in two ways; the first one counts",
    "superseded_recorded": "it was replaced by another request, and counts at Stripe after all",
    "error_report_unreadable": "nobody can read this report of Stripe's",
    "error_report_of_unknown_request": "it names a request of ours that this ledger does not know",
    "error_report_without_cells": "it counts errors that can be of nothing that was sent",
}
_EVIDENCE: Final = frozenset({"tenant_id", "metric", "window_start", "recorded", "told"})
"""What a finding about a series says; one that says less is told as it stands."""
_ENDS: Final = "no amount changes; it is not remarked any more"


@dataclass(frozen=True, slots=True)
class Told:
    """A finding in words."""

    about: str
    says: str
    look: str
    """What to type to see more."""
    cleared: str
    """What clearing it does."""


def told(kind: str, subject: str, detail: Mapping[str, Any]) -> Told:
    """One finding in words.

    Args:
        kind: as the ledger has it.
        subject: what it is unique for.
        detail: its evidence.
    """
    if kind.startswith(_LEVEL) and detail.keys() >= _EVIDENCE:
        return _series(detail)
    if kind.startswith(_METER) and "rule" in detail:
        return _meter(kind.removeprefix(_METER), subject, detail)
    says = _SAYS.get(kind, "it contradicts what is recorded")
    return Told(subject, says, _LOOK.get(kind, "tailrace audit"), _ENDS)


def _series(detail: Mapping[str, Any]) -> Told:
    tenant, metric, start = (str(detail[n]) for n in ("tenant_id", "metric", "window_start"))
    was, other = detail["recorded"], detail["told"]
    return Told(
        f"{tenant} {metric} {start}",
        f"{was['count']} records of {was['total']} units are recorded from offset {was['birth']} "
        f"on, {other['count']} of {other['total']} were told from {other['birth']} on",
        f"tailrace windows show {shlex.quote(tenant)} {shlex.quote(metric)} {shlex.quote(start)}",
        "what is recorded counts, and the series is billed again once no other finding holds it",
    )


def _meter(kind: str, event_name: str, detail: Mapping[str, Any]) -> Told:
    means = MEANING.get(kind, "what is sent to it is not billed as it must be")
    return Told(
        event_name,
        f"{detail['rule']}; {means}",
        f"tailrace doctor {CHECKS.get(kind, '')}".rstrip(),
        "a worker looks within the hour, and notes it again while it is so",
    )
