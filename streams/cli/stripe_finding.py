"""What a probe saw, and what of it the product relies on."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from streams.cli.stripe_lab import Lab, Seen

UNKNOWN_CUSTOMER: Final = "cus_unknown_tailrace"
ENDS_AS_DEAD: Final = frozenset({"recorded", "bad_data", "unknown_refusal"})
"""Rows by which a bad meter event becomes a dead letter: at once, or when a report names it."""


class Finding(NamedTuple):
    """What a probe saw."""

    seen: Seen
    said: str
    """In a few words."""
    holds: bool | None = None
    still: str | None = None
    """What only a later run can tell."""


Probe = Callable[[Lab], Awaitable[Finding]]


def row_said(answer: Mapping[str, Any]) -> str:
    """An answer to a meter event in a few words."""
    return f"{answer['status']}, which is `{answer['row']}`"
