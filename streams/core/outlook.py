"""Outlook: an unsettled amount and the deadline of its invoice → whether it will be on it.

In: when the amount can move next, whether anything holds it, its deadline, the time. Out: on time,
at risk, will miss (unless a person acts), or missed.
"""

from typing import Final, Literal

from streams.core.instant import HOUR_US

Outlook = Literal["on time", "at risk", "will miss", "missed"]

NEAR_US: Final = HOUR_US
"""Left of less than this is a risk: one outage of Stripe's may outlast it."""
BY_A_PERSON: Final = frozenset({"dead", "review", "series held"})
"""States that nothing but a person's decision ends."""


def outlook(
    state: str, moves_at_us: int | None, deadline_us: int, now_us: int, *, held: bool
) -> Outlook:
    """The outlook of one amount.

    Args:
        state: what it waits as.
        moves_at_us: when it is cut or sent next; None when nothing will by itself.
        deadline_us: last instant, exclusive, at which it is sent to its invoice.
        now_us: the ledger's time.
        held: whether its lane is paused or publishing is halted.
    """
    if deadline_us <= now_us:
        return "missed"
    if held or state in BY_A_PERSON or moves_at_us is None or moves_at_us >= deadline_us:
        return "will miss"
    return "at risk" if deadline_us - now_us < NEAR_US else "on time"
