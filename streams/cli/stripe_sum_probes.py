"""The questions that Stripe answers after a while, in sums and reports: a lab → what was seen.

In: a `Lab`. Out: a `Finding`, or `StillOpenError` where nothing came in time.
"""

from decimal import Decimal
from typing import Final

import aiohttp
import stripe

from streams.adapters.stripe_wire import observe_error
from streams.cli.stripe_finding import UNKNOWN_CUSTOMER, Finding, row_said
from streams.cli.stripe_lab import MINUTE_S, Lab, plain, shown, units
from streams.core.live_meter import LiveMeter
from streams.core.observation import Answer

DAY_S: Final = 86_400
HOUR_S: Final = 3_600
LAGS: Final = 3


async def stream_duplicate(lab: Lab) -> Finding:
    """One identifier twice in a stream."""
    meter, customer = await lab.meter(), await lab.customer()
    event = {
        "event_name": meter.event_name,
        "identifier": lab.name("stream"),
        "payload": {meter.customer_key: customer, meter.value_key: "1"},
    }
    billing = lab.sink.client.v2.billing
    try:
        session = await billing.meter_event_session.create_async()
        for _ in range(2):
            await billing.meter_event_stream.create_async(
                {"events": [event]},  # type: ignore[list-item]  # its optional time is left out
                {"api_key": session.authentication_token},
            )
    except (stripe.StripeError, aiohttp.ClientError, OSError) as error:
        seen = observe_error(error)
        if not isinstance(seen, Answer):
            return Finding({"streams": str(seen)}, f"no stream: {seen}")
        return Finding({"refused": plain(seen)}, f"no stream with this key: {seen.status}")
    await lab.await_sum(meter, customer, 1)
    total = units(await lab.recent(meter, customer))
    return Finding({"sent": 2, "counted": total}, f"2 sent, {total} counted")


async def rejected_identifier(lab: Lab) -> Finding:
    """Taken back, and sent again for a customer that exists."""
    since_us = lab.clock.now_us()
    meter, identifier, key = await lab.meter(), lab.name("rejected"), lab.name("key")
    first = await lab.send(meter, UNKNOWN_CUSTOMER, identifier=identifier, key=key)
    if first.status == 200:
        await lab.report_sample(since_us, frozenset({identifier, key}))
    again = shown(await lab.send(meter, await lab.customer(), identifier=identifier), identifier)
    seen = {"first": shown(first, identifier), "again": again}
    return Finding(seen, row_said(again), holds=again["row"] in {"duplicate", "recorded"})


async def summary_lag(lab: Lab) -> Finding:
    """From the answer to the sum, a few times."""
    meter, customer = await lab.meter(), await lab.customer()
    lags_s = []
    for number in range(1, LAGS + 1):
        await lab.send(meter, customer)
        lags_s.append(await lab.await_sum(meter, customer, number))
    return Finding({"lags_s": lags_s}, f"{max(lags_s):.1f} s at most", max(lags_s) < DAY_S)


async def summary_end(lab: Lab) -> Finding:
    """A meter event exactly on a minute that ends one range and begins the next."""
    meter, customer = await lab.meter(), await lab.customer()
    at_s = lab.now_s - lab.now_s % MINUTE_S - 10 * MINUTE_S
    await lab.send(meter, customer, at_s=at_s)
    await lab.await_sum(meter, customer, 1)
    before = await lab.total(meter, customer, at_s - MINUTE_S, at_s)
    after = await lab.total(meter, customer, at_s, at_s + MINUTE_S)
    seen = {"ends_there": units(before), "begins_there": units(after)}
    said = "{ends_there} in the range that ends there, {begins_there} in the one that begins"
    return Finding(seen, said.format(**seen), holds=before == 0 and after == 1)


async def overwrite_order(lab: Lab) -> Finding:
    """Three meter events in one window, the last one received dated between the others."""
    meter, customer = await lab.meter("hourly", "hour"), await lab.customer()
    total = await _overwritten(lab, meter, customer, (("5", 10), ("7", 40), ("3", 20)), Decimal(3))
    words = {
        Decimal(3): "the one received last",
        Decimal(7): "the one dated last",
        Decimal(15): "all",
    }
    remains = words.get(total, f"{units(total)} units")
    return Finding({"total": units(total), "remains": remains}, remains, holds=total == 3)


async def overwrite_parts(lab: Lab) -> Finding:
    """A window with an amount in each half, read in halves."""
    meter, customer = await lab.meter("hourly", "hour"), await lab.customer()
    await _overwritten(lab, meter, customer, (("5", 10), ("7", 40)), Decimal(7))
    start_s = _last_hour(lab)
    middle_s, end_s = start_s + HOUR_S // 2, start_s + HOUR_S
    first = units(await lab.total(meter, customer, start_s, middle_s))
    second = units(await lab.total(meter, customer, middle_s, end_s))
    said = f"{first} in the first half, {second} in the second"
    return Finding({"first_half": first, "second_half": second}, said)


def _last_hour(lab: Lab) -> int:
    return lab.now_s - lab.now_s % HOUR_S - HOUR_S


async def _overwritten(
    lab: Lab,
    meter: LiveMeter,
    customer: str,
    events: tuple[tuple[str, int], ...],
    expected: Decimal,
) -> Decimal:
    """Sends amounts at minutes of the last hour; the sum that comes of it, after a while."""
    start_s = _last_hour(lab)
    for value, minute in events:
        await lab.send(meter, customer, value, at_s=start_s + minute * MINUTE_S)

    async def total() -> Decimal:
        return await lab.total(meter, customer, start_s, start_s + HOUR_S)

    async def there() -> bool:
        return await total() != 0

    await lab.wait("a sum of the window", there)
    return await lab.settle(total, expected)


async def report_names(lab: Lab) -> Finding:
    """An event that is taken back, with a key that is not its identifier."""
    since_us = lab.clock.now_us()
    identifier, key = lab.name("reported"), lab.name("reported-key")
    answer = await lab.send(await lab.meter(), UNKNOWN_CUSTOMER, identifier=identifier, key=key)
    if answer.status != 200:
        return Finding({"answer": shown(answer, identifier)}, "refused at once: nothing to report")
    request = await lab.report_sample(since_us, frozenset({identifier, key}))
    words = {identifier: "the identifier", key: "the idempotency key"}
    named = {name: words[text] for name, text in request.items() if text in words}
    said = ", ".join(f"{name} is {what}" for name, what in named.items())
    return Finding({"fields": sorted(request), "named": named}, said, holds=True)
