"""Quantities: decimal text → a whole number of units of the meter's scale, or why not.

Money-like numbers are never floats: `1.25` at scale 2 is 125 units; Stripe is told 125.
"""

import re
from typing import Final

UNITS_LIMIT: Final = 10**15
"""Stripe takes at most 15 significant digits; |units| stays below this everywhere."""

DIGITS_MAX: Final = 30
"""Digits read on either side of the point; more is no number that anybody meant."""

_DECIMAL: Final = re.compile(
    rf"-?(?P<whole>[0-9]{{1,{DIGITS_MAX}}})(?:\.(?P<fraction>[0-9]{{1,{DIGITS_MAX}}}))?", re.ASCII
)


def to_units(text: str, scale: int) -> int:
    """Exact units of a decimal text.

    Args:
        text: digits with an optional sign and fraction; no exponent, no white space.
        scale: decimal places of the meter, 0 to 12.

    Raises:
        ValueError: naming the rule that the text breaks.
    """
    whole, point, fraction = text.partition(".")
    digits = whole + fraction
    # Nearly every quantity: whole units, or a few decimals. The rest is examined below.
    if (
        digits.isdigit()
        and digits.isascii()
        and len(digits) <= DIGITS_MAX
        and len(fraction) <= scale
        and ((fraction and whole) or not point)
    ):
        return int(digits + "0" * (scale - len(fraction)))
    matched = _DECIMAL.fullmatch(text)
    if matched is None:
        message = f"not a decimal number of at most {DIGITS_MAX} plain digits"
        raise ValueError(message)
    fraction = (matched["fraction"] or "").rstrip("0")
    if len(fraction) > scale:
        message = f"has {len(fraction)} decimal places, the meter's scale allows {scale}"
        raise ValueError(message)
    magnitude = int(matched["whole"] + fraction.ljust(scale, "0"))
    return -magnitude if text[0] == "-" else magnitude


def from_units(units: int, scale: int) -> str:
    """The decimal text of a number of units, for people."""
    sign, digits = ("-" if units < 0 else ""), str(abs(units)).rjust(scale + 1, "0")
    return sign + (digits if scale == 0 else f"{digits[:-scale]}.{digits[-scale:]}")
