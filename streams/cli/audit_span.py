"""Which part of a registry an audit judges."""

from dataclasses import dataclass
from typing import Any

from streams.core.instant import FIRST_US, LAST_US, MINUTE_US, from_us


def begin_us(now_us: int, since_us: int | None) -> int:
    """Where a span begins that reaches so far back, None for everything.

    On a whole minute: the ledger counts minutes, and would seem to have nothing of half a one.
    """
    if since_us is None:
        return FIRST_US
    from_us = now_us - since_us
    return from_us - from_us % MINUTE_US


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of the registry is judged: `received_at` from here on."""

    source: str
    from_us: int = FIRST_US
    open_us_max: int = 5 * MINUTE_US
    """A transaction that is open for longer is told when it keeps minutes from being sealed."""

    @property
    def of_registry(self) -> dict[str, Any]:
        """Bounds for the source's statements."""
        return {"from": from_us(self.from_us), "to": from_us(LAST_US)}

    @property
    def of_ledger(self) -> dict[str, Any]:
        """Bounds for the ledger's statements."""
        return {"source": self.source, "from_us": self.from_us, "to_us": LAST_US}
