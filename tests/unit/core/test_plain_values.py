"""Identity, instants and quantities: one form each, and errors that name the rule."""

from datetime import datetime
from hashlib import sha256

import pytest

from streams.core.identity import (
    content_digest,
    correction_id,
    event_id,
    length_prefixed,
    log_uuid,
)
from streams.core.instant import DAY_US, HOUR_US, MINUTE_US, SECOND_US, duration_us, from_us, to_us
from streams.core.observation import (
    Answer,
    MaybeSent,
    NotSent,
    Observation,
    cause_of,
    in_words,
    is_refusal,
    is_silence,
)
from streams.core.quantity import from_units, to_units


def test_an_identity_is_the_hash_of_three_prefixed_texts() -> None:
    raw = b"\0\0\0\x06orders" + b"\0\0\0\x04acme" + b"\0\0\0\x02\xc3\xa9"
    assert length_prefixed("orders", "acme", "é") == raw
    assert event_id("orders", "acme", "é") == sha256(raw).digest()[:16]
    fix = b"\0\0\0\x0acorrection" + raw
    assert correction_id("orders", "acme", "é") == sha256(fix).digest()[:16]


def test_no_two_lists_encode_alike() -> None:
    assert event_id("ab", "c", "d") != event_id("a", "bc", "d")
    assert event_id("a", "b", "") != event_id("a", "", "b")


def test_content_is_metric_quantity_and_the_given_instant() -> None:
    identity = bytes(range(16))
    parts = b"\0\0\0\x01m" + b"\0\0\0\x031.5"
    assert (
        content_digest(identity, "m", "1.5", "")
        == (sha256(identity + parts + bytes(4)).digest()[:16])
    )
    given = b"\0\0\0\x1b1970-01-01T00:00:00.000000Z"
    text = "1970-01-01T00:00:00.000000Z"
    digest = sha256(identity + parts + given).digest()[:16]
    assert content_digest(identity, "m", "1.5", text) == digest


@pytest.mark.parametrize("text", ["__________8_-AAAAAAAAA", "//////////8/+AAAAAAAAA"])
def test_a_topics_id_is_one_uuid_in_either_alphabet(text: str) -> None:
    assert log_uuid(text) == "ffffffff-ffff-ffff-3ff8-000000000000"


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="instant: has no time zone; give UTC"):
        to_us(datetime(2026, 1, 1))  # noqa: DTZ001 - the refused case itself


def test_an_instant_in_another_zone_is_the_same_instant() -> None:
    assert to_us(datetime.fromisoformat("1970-01-01T02:00:00.000001+02:00")) == 1
    assert to_us(from_us(-1)) == -1


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0s", 0), ("90s", 90 * SECOND_US), ("5m", 5 * MINUTE_US), ("24h", 24 * HOUR_US),
        ("7d", 7 * DAY_US), ("999999999s", 999_999_999 * SECOND_US),
    ],
)  # fmt: skip
def test_a_duration_is_a_whole_number_and_a_unit(text: str, us: int) -> None:
    assert duration_us(text) == us


@pytest.mark.parametrize(
    "text", ["", "s", "5", "5 m", "1.5h", "-1h", "5w", "1h30m", "٣h", "1000000000s", "²h"]
)
def test_any_other_duration_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: a whole number and one of s, m, h, d"):
        duration_us(text)


@pytest.mark.parametrize(
    ("text", "scale", "units"),
    [
        ("7", 0, 7), ("-7", 0, -7), ("007", 0, 7), ("7.000", 0, 7), ("0", 0, 0), ("-0", 2, 0),
        ("1.25", 2, 125), ("1.2", 2, 120), ("1.2500", 2, 125), ("-0.01", 2, -1), ("0.29", 2, 29),
        ("999999999999.999", 3, 10**15 - 1), ("9" * 30, 0, 10**30 - 1), ("0.000000000001", 12, 1),
    ],
)  # fmt: skip
def test_units_are_exact(text: str, scale: int, units: int) -> None:
    assert to_units(text, scale) == units


@pytest.mark.parametrize(
    "text",
    [
        "", " 1", "1 ", "+1", "1e3", "1E3", "NaN", "Infinity", "-", ".5", "5.", "1,5", "1_000",
        "0x1", "٣", "１", "1.٣", "٣.1", "--1", "1.2.3", "9" * 31, "9" * 5000, "1." + "0" * 31,
        "1\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("scale", [0, 2])
def test_what_is_no_plain_number_is_refused(text: str, scale: int) -> None:
    with pytest.raises(ValueError, match="not a decimal number of at most 30 plain digits"):
        to_units(text, scale)


def test_more_places_than_the_scale_are_refused() -> None:
    with pytest.raises(ValueError, match="has 3 decimal places, the meter's scale allows 2"):
        to_units("1.255", 2)
    with pytest.raises(ValueError, match="has 1 decimal places, the meter's scale allows 0"):
        to_units("1.5", 0)


@pytest.mark.parametrize(
    ("units", "scale", "text"),
    [(125, 2, "1.25"), (-1, 2, "-0.01"), (0, 2, "0.00"), (5, 0, "5"), (-5, 0, "-5")],
)
def test_units_read_as_decimals(units: int, scale: int, text: str) -> None:
    assert from_units(units, scale) == text


@pytest.mark.parametrize(
    ("seen", "words", "cause"),
    [
        (
            Answer(401, True, error_message="Invalid API Key"),
            "Stripe answered 401: Invalid API Key",
            "HTTP 401",
        ),
        (Answer(502, False), "Stripe answered 502", "HTTP 502"),
        (
            NotSent("ClientConnectorError"),
            "Stripe was not reached (ClientConnectorError)",
            "ClientConnectorError",
        ),
        (
            MaybeSent("TimeoutError"),
            "Stripe gave no whole answer (TimeoutError)",
            "TimeoutError",
        ),
    ],
)
def test_an_observation_is_told_in_words(seen: Observation, words: str, cause: str) -> None:
    assert in_words(seen) == words
    assert cause_of(seen) == cause


@pytest.mark.parametrize(
    ("seen", "silence", "refusal"),
    [
        (Answer(200, parsed=True), False, False),
        (Answer(400, parsed=True), False, False),
        (Answer(403, parsed=True), False, False),
        (Answer(429, parsed=True), False, False),
        (Answer(499, parsed=False), False, False),
        (Answer(401, parsed=True), True, True),
        (Answer(500, parsed=True), True, False),
        (Answer(503, parsed=False), True, False),
        (NotSent("ConnectError"), True, False),
        (MaybeSent("ReadTimeout"), True, False),
    ],
)
def test_whoever_serves_nobody_here_is_silent(
    seen: Observation, silence: bool, refusal: bool
) -> None:
    assert (is_silence(seen), is_refusal(seen)) == (silence, refusal)
