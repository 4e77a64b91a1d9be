"""How much one publisher takes on, of lanes and of time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """How many lanes, how long a lease, how long one request may take at the most."""

    worker: str
    lanes: int
    lease_s: int
    request_s_max: float
    rate_per_s: int

    @property
    def lent_max(self) -> int:
        """See `lent_max`."""
        return lent_max(self.lanes, self.rate_per_s)


def lent_max(lanes: int, rate_per_s: int) -> int:
    """Lanes lent at a time: those in flight, those being settled, and some to go on with.

    At most two seconds' worth of requests, or their leases would run out waiting for a token.
    """
    return lanes + min(3 * lanes, 2 * rate_per_s)
