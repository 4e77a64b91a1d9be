import msgspec
import pytest

from streams.core.dead_letter import DeadMeterEvent, record_of


def dead(detail: str, reason: str = "refused", tenant: str | None = "acme") -> DeadMeterEvent:
    return DeadMeterEvent(7, reason, 9, tenant, "jobs", "-5", 0, 60_000_000, 61_000_000, detail)


@pytest.mark.parametrize(
    ("detail", "reason", "next_step"),
    [
        ("{}", "refused", "read Stripe's message"),
        ('{"attempts": []}', "exhausted", "redrive when it is well again"),
        ('{"attempts": [{"code": "x"}, {"code": "no_meter"}]}', "refused", "create the meter"),
        ('{"attempts": [{"outcome": "too_old", "code": null}]}', "refused", "too old for Stripe"),
        ('{"attempts": [{"outcome": "Ambiguous"}]}', "ambiguous", "only with proof"),
    ],
)
def test_the_last_attempt_says_what_comes_next(detail: str, reason: str, next_step: str) -> None:
    record = msgspec.json.decode(record_of(dead(detail, reason))[1])
    assert next_step in record["next"]


def test_the_detail_goes_on_as_it_was_written() -> None:
    detail = '{"amount": 9007199254740993,  "attempts": [{"code": "x", "new": 1}]}'
    key, value = record_of(dead(detail))
    assert key == b"acme"
    assert detail.encode() in value
    assert record_of(dead(detail, tenant=None))[0] is None
