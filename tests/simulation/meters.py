"""The rule book that a world begins with, and the line that is added while usage is written."""

from typing import Final

from streams.core.catalogue import MeterVersion
from streams.core.instant import HOUR_US, MINUTE_US
from tests.simulation.timeline import T0_US


def _meter(metric: str, **changes: object) -> MeterVersion:
    plain = MeterVersion(
        metric=metric, version=1, event_name=metric, window_us=HOUR_US, publish="window", scale=0,
        skew_max_us=3 * HOUR_US, close_delay_us=MINUTE_US, carry="review", aggregation="sum",
        rules=1, effective_from_us=0,
    )  # fmt: skip
    return plain._replace(**changes)  # type: ignore[arg-type]  # named fields of it


METERS: Final = (
    _meter("calls", carry="next-period"),
    _meter("storage", window_us=10 * MINUTE_US, scale=2, skew_max_us=2 * HOUR_US),
    _meter("jobs", publish="event", carry="manual"),
    _meter("logins", publish="event", aggregation="count"),
)
CHANGED: Final = _meter(
    "storage", version=2, event_name="volume", window_us=30 * MINUTE_US, scale=2,
    skew_max_us=HOUR_US, effective_from_us=T0_US + 90 * MINUTE_US,
)  # fmt: skip
"""Other windows, an earlier cutoff and another meter of Stripe's, from an instant on that workers
know of an hour ahead at the least."""
APPLIED_S_MAX: Final = 25 * 60.0
"""So late may it be applied at the latest, whatever the ledger's clock says of the notice."""
EVENT_NAMES: Final = tuple(meter.event_name for meter in (*METERS, CHANGED))
