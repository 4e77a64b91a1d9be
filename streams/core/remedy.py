"""A dead item's evidence → what a person does next, in one sentence.

In: why it is dead, and the last word of Stripe's or of the rules. Out: text, never empty: a dead
letter that nobody knows how to end would stay for ever.
"""

from collections.abc import Mapping
from typing import Final

_BY_CODE: Final[Mapping[str, str]] = {
    "no_meter": "create the meter in Stripe, then redrive",
    "archived_meter": "reactivate the meter in Stripe, then redrive",
    "meter_event_customer_not_found": "restore the customer in Stripe, then redrive",
    "payload_no_customer_defined": "let the meter read stripe_customer_id, then redrive",
    "unnamed": "Stripe counted its rejection and did not name it: mend what the report names for "
    "others (`tailrace rejections list`), then redrive",
    "resource_missing": "restore what Stripe does not find, then redrive",
}

_BY_REASON: Final[Mapping[str, str]] = {
    "refused": "read Stripe's message, mend what it names, then redrive",
    "exhausted": "Stripe failed this request while it took others: redrive when it is well again",
    "ambiguous": "Stripe may hold it: compare with Stripe's own summaries; redrive only with proof "
    "that it is absent there",
    "malformed": "mend its producer and record the usage again under a new event key (this one "
    "stays dead), then reject the item",
    # Nobody has judged its identity, so it is still owed: a new event key would bill it twice.
    "unread": "find out what ended the workers, for it may have met this record by chance; then "
    "let metering.reemit send its row again, which is read like any other, and reject the item",
}

_ALTERED: Final = (
    "find what changed or made this record; let metering.reemit send the row again where tailrace "
    "audit names it as lost, then reject the item"
)
_ALTERED_PATHS: Final = frozenset({"$.content", "$.event_id"})
_UNKNOWN: Final = "read the evidence; nothing happens to it by itself"
_TOO_OLD: Final = (
    "too old for Stripe: correct its window by its opposite, which resolves this, and the open "
    "period by it"
)


def remedy(reason: str, code: str | None, outcome: str | None) -> str:
    """What ends a dead item.

    Args:
        reason: malformed, unread, refused, exhausted or ambiguous.
        code: Stripe's code of the last attempt, if there was one; of a malformed record the path.
        outcome: how the last attempt was settled, such as `too_old`.
    """
    if reason == "refused":
        if outcome == "too_old":
            return _TOO_OLD
        return _BY_CODE.get(code or "", _BY_REASON["refused"])
    if reason == "malformed" and code in _ALTERED_PATHS:
        return _ALTERED  # recorded it is, under its own key: a new one would bill it twice
    return _BY_REASON.get(reason, _UNKNOWN)
