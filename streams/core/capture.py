"""Whether what is recorded reaches the ledger: what was seen of the way there → remarks.

Nothing here is lost: the registry keeps every row, and a repair sends it again. But who does not
know that rows stand still cannot say that nothing waits; nor can who could not look.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from streams.core.instant import age_text
from streams.core.remark import Remark

CANARY_AGE_S_MAX: Final = 120
"""A canary that is longer under way says that its partition does not flow. The age of the last one
that arrived says nothing: canaries are sent by audits and starts, not at regular times."""
UNTOLD_AGE_S_MAX: Final = CANARY_AGE_S_MAX
"""Usage is under way no longer than a canary."""


class Unread(msgspec.Struct, frozen=True):
    """A part of the way that could not be looked at."""

    what: str
    why: str


class Capture(msgspec.Struct, frozen=True):
    """The way from the service's database to the ledger, as it was seen."""

    untold: int = 0
    """Identities recorded since the ledger was last told of any."""
    untold_age_s: float | None = None
    """Of the oldest of them."""
    slot: str | None = None
    """`read`, `idle`, `lost` or `missing`; None where it was not looked at."""
    connector: str | None = None
    """What Connect says of connector and tasks."""
    running: bool = True
    """False where Connect says that one of them does not run."""
    unread: tuple[Unread, ...] = ()
    """What is set and could not be looked at."""
    unset: tuple[str, ...] = ()
    """Settings without which nobody can look."""


_SLOT: Final = {
    "missing": "is missing: what was recorded since arrives only by a repair",
    "lost": "was given up by its server: what was recorded since arrives only by a repair",
    "idle": "is read by nobody: what is recorded does not arrive",
}


def capture_remarks(capture: Capture, canary_under_way_s: float | None) -> Iterator[Remark]:
    """What keeps recorded usage from the ledger, and what nobody could look at."""
    if not capture.running:
        text = f"capture does not run ({capture.connector}): what is recorded does not arrive"
        yield Remark("warning", "capture_down", text, "tailrace connector status")
    # Nobody reads the slot of a connector that does not run: that is said already.
    if capture.slot in _SLOT and (capture.running or capture.slot != "idle"):
        text = f"the replication slot {_SLOT[capture.slot]}"
        yield Remark("warning", f"slot_{capture.slot}", text, "tailrace source guard")
    yield from _under_way(capture, canary_under_way_s)
    for part in capture.unread:
        text = f"nobody knows of {part.what}: {part.why}"
        yield Remark("warning", "capture_unread", text, "tailrace doctor")
    if capture.unset:
        text = f"not looked whether usage arrives: {', '.join(capture.unset)} not set"
        yield Remark("info", "capture_unset", text, "tailrace config show")


def _under_way(capture: Capture, canary_under_way_s: float | None) -> Iterator[Remark]:
    age_s = capture.untold_age_s
    if age_s is not None and age_s > UNTOLD_AGE_S_MAX:
        text = f"{capture.untold} recorded and not in the ledger, the oldest for {age_text(age_s)}"
        yield Remark("warning", "untold", text, "tailrace doctor")
    if canary_under_way_s is not None and canary_under_way_s > CANARY_AGE_S_MAX:
        age = age_text(canary_under_way_s)
        text = f"a canary is under way for {age}, so a partition does not flow"
        yield Remark("warning", "not_flowing", text, "tailrace source guard")
