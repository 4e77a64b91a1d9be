"""Which part of a registry an audit judges."""

from dataclasses import dataclass
from typing import Any

from streams.core.instant import FIRST_US, LAST_US, MINUTE_US, from_us


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
