"""The webhook's door: who is let in, and what the server makes of it."""

import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
import stripe

from streams.adapters.stripe_events import RefusedCall, open_notification
from streams.adapters.webhook import BODY_BYTES_MAX, PATH, WebhookServer
from streams.ports import Told

SECRET = "whsec_tests"
BODY = '{"id": "evt_1", "object": "v2.core.event", "type": "v1.billing.meter.no_meter_found"}'
CURIOUS = BODY.replace("evt_1", "../charges")
TOLD = Told("evt_1", "v1.billing.meter.no_meter_found")


def signed(body: str, secret: str = SECRET, late_s: int = 0) -> str:
    header = stripe.WebhookSignature.generate_signature_header(
        body,
        secret,
        int(time.time()) - late_s,  # noqa: TID251 - the library reads the same clock
    )
    return str(header)


def opened(body: bytes, signature: str | None, secret: str = SECRET) -> Told | RefusedCall:
    now_s = int(time.time())  # noqa: TID251 - the library reads the same clock
    return open_notification(body, signature, secret, 300, now_s)


@pytest.mark.parametrize(
    ("body", "signature", "expected"),
    [
        (BODY, lambda: signed(BODY), TOLD),
        (BODY, lambda: signed(BODY, late_s=200), TOLD),
        (BODY, lambda: signed(BODY, late_s=-200), TOLD),
        (BODY, lambda: None, RefusedCall("signature")),
        (BODY, lambda: "", RefusedCall("signature")),
        (BODY, lambda: "nonsense", RefusedCall("signature")),
        (BODY, lambda: signed(BODY).split("v1=")[0] + "v1=éé", RefusedCall("signature")),
        (BODY, lambda: signed(BODY) + "\udce9", RefusedCall("signature")),
        (BODY, lambda: signed(BODY, "whsec_other"), RefusedCall("signature")),
        (BODY, lambda: signed(BODY + " "), RefusedCall("signature")),
        (BODY, lambda: signed(BODY, late_s=400), RefusedCall("signature")),
        (BODY, lambda: signed(BODY, late_s=-400), RefusedCall("signature_from_the_future")),
        ("{}", lambda: signed("{}"), RefusedCall("unreadable")),
        ("[", lambda: signed("["), RefusedCall("unreadable")),
        (CURIOUS, lambda: signed(CURIOUS), RefusedCall("unreadable")),
    ],
)
def test_only_what_stripe_signed_a_moment_ago_is_opened(
    body: str, signature: Callable[[], str | None], expected: Told | RefusedCall
) -> None:
    assert opened(body.encode(), signature()) == expected


def test_two_secrets_while_one_is_being_replaced() -> None:
    stamp, ours = signed(BODY).split(",")
    assert opened(BODY.encode(), f"{stamp},v1={'0' * 64},{ours}") == TOLD


def test_without_a_secret_nothing_is_opened() -> None:
    assert opened(BODY.encode(), signed(BODY), "") == RefusedCall("signature")


def test_bytes_that_are_no_text_are_refused() -> None:
    assert opened(b"\xff", signed("x")) == RefusedCall("signature")


Receive = Callable[[bytes, str | None], Awaitable[tuple[int, str]]]


async def call(receive: Receive, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
    server = WebhookServer("127.0.0.1", 0, receive)
    address = await server.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method,
                address.removesuffix(PATH) + path,
                data=body,
                headers={"Stripe-Signature": "t=1"},
            ) as response,
        ):
            return response.status, await response.text()
    finally:
        await server.stop()


async def test_a_call_reaches_the_receiver_byte_for_byte_and_its_answer_comes_back() -> None:
    seen: list[tuple[bytes, str | None]] = []

    async def receive(body: bytes, signature: str | None) -> tuple[int, str]:
        seen.append((body, signature))
        return 503, "not noted"

    body = b'{"id":  "\xc3\xa4"}\n'
    assert await call(receive, "POST", PATH, body) == (503, "not noted\n")
    assert seen == [(body, "t=1")]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", b"", 200),
        ("GET", PATH, b"", 405),
        ("POST", "/", b"", 404),
        ("POST", PATH, b"x" * (BODY_BYTES_MAX + 1), 413),
    ],
)
async def test_nothing_else_reaches_it(method: str, path: str, body: bytes, status: int) -> None:
    async def receive(_body: bytes, _signature: str | None) -> tuple[int, str]:
        raise AssertionError("received")

    assert (await call(receive, method, path, body))[0] == status


async def test_a_receiver_that_fails_is_told_again() -> None:
    async def receive(_body: bytes, _signature: str | None) -> tuple[int, str]:
        raise OSError("disk")

    assert (await call(receive, "POST", PATH))[0] == 500
