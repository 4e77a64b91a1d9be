"""What an audit found of units → its part of the JSON report."""

from typing import Any

from streams.cli.document import instant_text
from streams.core.audit_units import Amount, Difference, UnitsFound


def units_document(found: UnitsFound) -> dict[str, Any]:
    """Windows by what they came to, and each listed difference; units as text, exact."""
    return {
        "equal": found.equal,
        "open": found.open,
        "shared": found.shared,
        "different": len(found.differences) + found.unlisted,
        "differences": [_difference(each) for each in found.differences],
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        **difference.series._asdict(),
        "window": instant_text(difference.start_us),
        "verdict": difference.verdict,
        "recorded": _amount(difference.recorded),
        "counted": _amount(difference.counted),
        "more_units": str(difference.more_units),
    }


def _amount(amount: Amount) -> dict[str, Any]:
    return {"events": amount.tally.count, "units": str(amount.units)}
