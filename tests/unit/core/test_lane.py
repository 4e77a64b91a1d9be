"""A claim names its request to Stripe the same way for as long as nothing was answered."""

from dataclasses import replace

from streams.core.lane import Claim

CLAIM = Claim(
    lane_id=1,
    meter_event_id=2,
    attempt_id=3,
    customer="cus_acme",
    event_name="api_calls",
    value="7",
    timestamp_s=1_700_000_000,
    identifier="m1:abc",
    payload_hash="00",
    key_generation=1,
    attempts_used=0,
    previous_attempts=0,
    first_attempt_at_us=1,
    possibly_executed=False,
    now_us=1,
    lease_until_us=2,
)


def test_the_idempotency_key_holds_the_identifier_and_moves_only_with_its_generation() -> None:
    assert CLAIM.idempotency_key == "m1:abc.g1"
    assert replace(CLAIM, attempt_id=9, previous_attempts=4).idempotency_key == "m1:abc.g1"
    assert replace(CLAIM, key_generation=2).idempotency_key == "m1:abc.g2"
