"""Hop 7: what was seen of an attempt → what it means for the meter event.

In: an `Observation` and the meter event's `History`. Out: one `Outcome`. `classify` is pure and
total: whatever Stripe, a proxy or the network does, exactly one row of `RULES` applies.

Two ideas carry the table. Doubt is sticky: once an attempt may have been recorded, nothing but a
success or a duplicate ends the doubt; a limiter's or a validation's "no" speaks only of the attempt
it answers. And there are two keys: the identifier never changes, while the idempotency key moves on
after a *received* error, because Stripe replays a stored error to the same key for a day.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from streams.core.observation import Answer, History, MaybeSent, NotSent, Observation
from streams.core.outcome import (
    AlreadyRecorded,
    Ambiguous,
    Collision,
    Hold,
    Outcome,
    Recorded,
    Refused,
    RefusedKind,
    Retry,
    Systemic,
)

KEY_IN_USE_WAIT_MS: Final = 30_000
"""Twice the request's own limits and more: by then the first request under the key has ended."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the contract with Stripe. The first row that applies decides."""

    name: str
    observed: str
    """What is seen, in words; the generated documentation's first column."""
    meaning: str
    """What we conclude and do; the second column."""
    applies: Callable[[Answer, History], bool]
    decide: Callable[[Answer, History], Outcome]


_DUPLICATE_CODES: Final = frozenset({"duplicate_meter_event", "resource_already_exists"})
_DUPLICATE_MESSAGE: Final = re.compile(r"an event already exists with identifier", re.IGNORECASE)
_PAST_MESSAGE: Final = re.compile(r"timestamp.*\bpast\b", re.IGNORECASE | re.DOTALL)
_FUTURE_MESSAGE: Final = re.compile(r"timestamp.*\bfuture\b", re.IGNORECASE | re.DOTALL)
_METER_MESSAGE: Final = re.compile(r"no active meter|meter .*(archived|inactive)", re.IGNORECASE)
_CUSTOMER_MESSAGE: Final = re.compile(r"no such customer", re.IGNORECASE)
_METER_CODES: Final = frozenset({"no_meter", "archived_meter"})
_PAST_CODES: Final = frozenset({"timestamp_too_far_in_past"})
_FUTURE_CODES: Final = frozenset({"timestamp_in_future"})
_DATA_CODES: Final = frozenset(
    {
        "meter_event_customer_not_found",
        "meter_event_dimension_count_too_high",
        "meter_event_invalid_value",
        "meter_event_no_customer_defined",
        "meter_event_value_not_found",
        "meter_event_value_too_many_digits",
        "missing_dimension_payload_keys",
        "payload_invalid_value",
        "payload_no_customer_defined",
        "payload_no_value_defined",
        "parameter_invalid_integer",
        "parameter_missing",
        "parameter_unknown",
        "resource_missing",
    }
)


def _success(answer: Answer) -> bool:
    return 200 <= answer.status < 300 and answer.parsed and answer.identifier is not None


def _says(answer: Answer, codes: frozenset[str], message: re.Pattern[str] | None = None) -> bool:
    """Whether a 400 of Stripe's names one of the codes, or its text says the same."""
    if answer.status != 400 or not answer.parsed:
        return False
    if answer.error_code in codes:
        return True
    text = answer.error_message or ""
    return message is not None and message.search(text) is not None


def _names_us(answer: Answer, history: History) -> bool:
    """Whether a duplicate's text names our identifier; a bare code can only mean ours."""
    text = answer.error_message or ""
    return history.identifier in text or answer.error_code in _DUPLICATE_CODES


def _duplicate(answer: Answer, history: History) -> Outcome:
    if not _names_us(answer, history):
        return Collision("duplicate_of_another_identifier")
    return AlreadyRecorded() if history.possibly_executed else Collision("duplicate_unexplained")


def _next_if_replayed(answer: Answer, history: History) -> int:
    """A stored answer will be replayed for ever under its key; a fresh one may be learnt from."""
    return history.key_generation + 1 if answer.replayed else history.key_generation


def _unclear(answer: Answer, history: History) -> Outcome:
    return Ambiguous(_next_if_replayed(answer, history), after_ms=answer.retry_after_ms)


def _throttled(answer: Answer, history: History) -> Outcome:
    if answer.rate_limited_reason is not None and not answer.replayed:
        return Retry(history.key_generation, answer.retry_after_ms, slow_down=True)
    generation = _next_if_replayed(answer, history)
    return Ambiguous(generation, "never", answer.retry_after_ms, slow_down=True)


def _refuse(kind: RefusedKind, row: str | None = None) -> Callable[[Answer, History], Outcome]:
    """What Stripe did not give a code is told by its row, so that people can select it."""

    def decide(answer: Answer, history: History) -> Outcome:
        if history.possibly_executed:
            return Ambiguous(history.key_generation + 1, "always")
        return Refused(answer.error_code or row or f"http_{answer.status}", kind)

    return decide


RULES: Final = (
    Rule(
        "recorded",
        "2xx, a meter event with our identifier",
        "Recorded. A replayed success is the stored answer to the very same request.",
        lambda a, h: _success(a) and a.identifier == h.identifier,
        lambda _a, _h: Recorded(),
    ),
    Rule(
        "other_identifier",
        "2xx, a meter event with another identifier",
        "Collision: what was recorded is not what was sent. Parked, reconciled by the summaries.",
        lambda a, _h: _success(a),
        lambda _a, _h: Collision("identifier_mismatch"),
    ),
    Rule(
        "duplicate",
        "400 `An event already exists with identifier …`, or code `duplicate_meter_event`",
        "Already recorded if an earlier attempt may have been executed; else a collision: somebody "
        "else used the identifier, or the ledger forgot an attempt.",
        lambda a, _h: _says(a, _DUPLICATE_CODES, _DUPLICATE_MESSAGE),
        _duplicate,
    ),
    Rule(
        "key_reused",
        "400 of type `idempotency_error`",
        "Collision: the key was used with other parameters, which frozen requests never do.",
        lambda a, _h: a.parsed and a.status == 400 and a.error_type == "idempotency_error",
        lambda _a, _h: Collision("idempotency_key_reused"),
    ),
    Rule(
        "credentials",
        "401, or the key expired",
        "Systemic: sending stops for all; no attempt is used up, nothing is dead-lettered.",
        lambda a, _h: a.status == 401,
        lambda a, _h: Systemic("credentials", a.retry_after_ms),
    ),
    Rule(
        "permission",
        "403",
        "Systemic, as 401: the key lacks a permission.",
        lambda a, _h: a.status == 403,
        lambda a, _h: Systemic("permission", a.retry_after_ms),
    ),
    Rule(
        "throttled",
        "429 (or 400 `rate_limit`), with or without `Stripe-Rate-Limited-Reason`",
        "With the reason and not replayed: certainly not executed, retry with the same key, slow "
        "down. Without it (`lock_timeout`): ambiguous; a replayed one moves the key on.",
        lambda a, _h: a.status == 429 or _says(a, frozenset({"rate_limit"})),
        _throttled,
    ),
    Rule(
        "key_in_use",
        "409 `idempotency_key_in_use`",
        "Ambiguous: the first request under this key still runs; ask again later, same key.",
        lambda a, _h: a.status == 409 and a.error_code == "idempotency_key_in_use",
        lambda _a, h: Ambiguous(h.key_generation, after_ms=KEY_IN_USE_WAIT_MS),
    ),
    Rule(
        "lane_busy",
        "409 `too_many_concurrent_requests`",
        "Retry with the next key: another request for this customer and meter was in flight. Uses "
        "up an attempt while Stripe answers others: a lane that stays busy has a foreign writer.",
        lambda a, _h: a.status == 409 and a.error_code == "too_many_concurrent_requests",
        lambda a, h: Retry(h.key_generation + 1, a.retry_after_ms, charge="if_sink_up"),
    ),
    Rule(
        "too_old",
        "400, dated more than 35 days ago",
        "Refused: what happens to the amount is the meter's carry policy.",
        lambda a, _h: _says(a, _PAST_CODES, _PAST_MESSAGE),
        _refuse("too_old", "too_old"),
    ),
    Rule(
        "future",
        "400, dated in the future",
        "Hold until that instant: our clock and Stripe's disagree.",
        lambda a, _h: _says(a, _FUTURE_CODES, _FUTURE_MESSAGE),
        lambda _a, h: Hold(h.timestamp_s * 1_000_000),
    ),
    Rule(
        "no_meter",
        "400, no or an archived meter",
        "Refused (configuration). Create or reactivate the meter, then redrive.",
        lambda a, _h: _says(a, _METER_CODES, _METER_MESSAGE),
        _refuse("configuration", "no_meter"),
    ),
    Rule(
        "bad_data",
        "400, value, digits, customer or a parameter",
        "Refused (data). Correct the mapping or the amount, then redrive.",
        lambda a, _h: _says(a, _DATA_CODES, _CUSTOMER_MESSAGE),
        _refuse("data", "bad_data"),
    ),
    Rule(
        "unknown_refusal",
        "404 and every other 4xx of Stripe's except 408 and 409",
        "Refused (unknown): a person reads the evidence.",
        lambda a, _h: a.parsed and 400 <= a.status < 500 and a.status not in {408, 409},
        _refuse("unknown"),
    ),
    Rule(
        "unclear",
        "5xx, 408, other 409, a redirect, or a body that is not Stripe's (a proxy answered)",
        "Ambiguous. Same key first, to learn the first answer; a replayed error moves the key on.",
        lambda _a, _h: True,
        _unclear,
    ),
)
"""The contract with Stripe, in the order in which it is asked."""

_TRANSPORT: Final = (
    (
        "not_sent",
        "no connection: refused, DNS, TLS, no free connection in time",
        "Retry with the same key: not a byte left. Feeds the breaker, uses up no attempt.",
    ),
    (
        "maybe_sent",
        "timeout, reset, disconnect, truncated or stalled body, anything unforeseen",
        "Ambiguous, same key: its stored answer may tell.",
    ),
)


def contract() -> tuple[tuple[str, str, str], ...]:
    """Every row as (name, observed, meaning), in order: what documentation is generated from."""
    return tuple((rule.name, rule.observed, rule.meaning) for rule in RULES) + _TRANSPORT


def codes() -> dict[str, frozenset[str]]:
    """Stripe's error codes that a row knows by name; every other is told by its status alone."""
    return {
        "duplicate": _DUPLICATE_CODES,
        "too_old": _PAST_CODES,
        "future": _FUTURE_CODES,
        "no_meter": _METER_CODES,
        "bad_data": _DATA_CODES,
    }


def rule_for(answer: Answer, history: History) -> Rule:
    """The row that decides. The last row always applies, so there is one."""
    return next(rule for rule in RULES if rule.applies(answer, history))


def classify(observation: Observation, history: History) -> Outcome:
    """What one attempt means. Total: no observation is left without an outcome."""
    match observation:
        case Answer():
            return rule_for(observation, history).decide(observation, history)
        case NotSent():
            return Retry(history.key_generation)
        case MaybeSent():
            return Ambiguous(history.key_generation)
        case _:
            assert_never(observation)
