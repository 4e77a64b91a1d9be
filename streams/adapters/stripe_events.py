"""Stripe's events: a signed call → the event it tells of; an id → the event with its data; a list.

In: what arrives at the webhook endpoint, or a time. Out: events, never believed without a signature
or our own request to Stripe.
"""

import re
from typing import Final, NamedTuple

import msgspec
import stripe

from streams.adapters.stripe import StripeSink, StripeUnreadableError
from streams.core.instant import wire_text
from streams.core.observation import Answer
from streams.core.rejection import REPORT_TYPES
from streams.ports import Told

_STAMP: Final = re.compile(r"(?:^|,)\s*t=([0-9]{1,12})(?:,|$)")
_EVENT_ID: Final = re.compile(r"[A-Za-z0-9_]{1,255}")


class RefusedCall(NamedTuple):
    """A call that is not Stripe's, or that nobody can read."""

    why: str
    """A word for counting."""


class _Notification(msgspec.Struct):
    id: str
    type: str


def open_notification(
    body: bytes, signature: str | None, secret: str, tolerance_s: int, now_s: int
) -> Told | RefusedCall:
    """Checks a call and reads which event it tells of.

    Args:
        body: exactly as it came.
        signature: header `Stripe-Signature`.
        secret: the endpoint's signing secret.
        tolerance_s: how far the signature's time may be from now.
        now_s: whole seconds since 1970 UTC.
    """
    if signature is not None and not signature.isascii():
        # The library compares digests in a way that takes no other text.
        return RefusedCall("signature")
    try:
        stripe.WebhookSignature.verify_header(body, signature, secret, tolerance_s)
    except (stripe.SignatureVerificationError, UnicodeDecodeError):
        return RefusedCall("signature")
    stamp = _STAMP.search(signature or "")
    # The library refuses old signatures only; one from the future could be kept for later.
    if stamp is None or int(stamp[1]) > now_s + tolerance_s:
        return RefusedCall("signature_from_the_future")
    try:
        notification = msgspec.json.decode(body, type=_Notification)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return RefusedCall("unreadable")
    if _EVENT_ID.fullmatch(notification.id) is None:
        return RefusedCall("unreadable")
    return Told(notification.id, notification.type)


class StripeEvents:
    """Error reports as Stripe keeps them, for 30 days."""

    def __init__(self, sink: StripeSink) -> None:
        self._sink = sink

    async def event(self, event_id: str) -> bytes:
        """An event with its data, as JSON.

        Raises:
            StripeUnreadableError: Stripe was not reached, refused, or knows no such event.
        """
        async with self._sink.reading(f"event {event_id}"):
            path = f"/v2/core/events/{event_id}"
            response = await self._sink.client.raw_request_async("get", path)
        return str(response.body).encode()

    async def reports_since(self, since_us: int) -> tuple[Told, ...]:
        """The error reports that Stripe made since then.

        Args:
            since_us: microseconds since 1970 UTC.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        async with self._sink.reading("error reports", requests=4):
            page = await self._sink.client.v2.core.events.list_async(
                {
                    "types": list(REPORT_TYPES),
                    "created": {"gte": wire_text(since_us)},
                    "limit": 100,
                }
            )
            found = [Told(event.id, event.type) async for event in page.auto_paging_iter()]
        # Asked for by type; an API that does not know the filter yet lists all.
        return tuple(told for told in found if told.event_type in REPORT_TYPES)

    async def meter_event_name(self, meter_id: str) -> str | None:
        """The event name of a meter; None where Stripe knows no such meter.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        try:
            return (await self._sink.meter(meter_id)).event_name
        except StripeUnreadableError as error:
            if isinstance(error.observation, Answer) and error.observation.status == 404:
                return None
            raise

    async def names_taken_since(self, since_us: int) -> frozenset[str]:
        """Event names whose meter has been there, active and unchanged, since then.

        Args:
            since_us: microseconds since 1970 UTC.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        meters = await self._sink.meters()
        return frozenset(meter.event_name for meter in meters if meter.took_since(since_us))
