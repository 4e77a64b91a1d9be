"""One rule for control characters: the outbox refuses what the worker would, in the same words."""

from __future__ import annotations

import re
import unicodedata

import msgspec
import psycopg
import pytest
from jsonschema import Draft202012Validator

from schemas.contracts import contract
from streams.core.envelope import control_rule, decode
from streams.core.event import Malformed
from tests.integration.outbox.conftest import Row
from tests.support.outbox import all_of, correct, outbox_rows, record

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]

DIRECTION = {0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
SURROGATES = range(0xD800, 0xE000)
BEYOND = (0x1F600, 0xE0001, 0xE0020, 0x10FFFF)
POINTS = [*(point for point in range(1, 0x10000) if point not in SURROGATES), *BEYOND]
REFUSED = {point for point in POINTS if unicodedata.category(chr(point)) == "Cc"} | DIRECTION
SAID = "must not hold control characters, holds U+"


def test_the_outbox_and_the_worker_refuse_the_same_characters_in_the_same_words(
    admin: Conn,
) -> None:
    rows = all_of(
        admin,
        "SELECT point, metering.text_rule('a' || chr(point) || 'b', 200) AS rule"
        " FROM unnest(%s::integer[]) AS point",
        (POINTS,),
    )
    by_outbox = {row["point"]: row["rule"] for row in rows}
    by_worker = {point: control_rule(f"a{chr(point)}b") for point in POINTS}
    assert by_outbox == by_worker
    assert {point for point, rule in by_worker.items() if rule is not None} == REFUSED


@pytest.mark.parametrize("point", [0x1, 0x1F, 0x7F, 0x9F, 0x200E, 0x202E, 0x2066, 0x2069])
@pytest.mark.parametrize("field", ["tenant_id", "metric", "event_key"])
def test_each_name_of_usage_is_refused_by_both_with_field_and_rule(
    writer: Conn, admin: Conn, field: str, point: int
) -> None:
    value = f"a{chr(point)}b"
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        record(writer, **{field: value})
    message = refused.value.diag.message_primary
    assert message == f"{field}: {SAID}{point:04X}"

    record(writer)
    [row] = outbox_rows(admin)
    payload = row["payload"] | {field: value}
    key = value if field == "tenant_id" else payload["kafka_key"]
    answer = decode(key.encode(), msgspec.json.encode(payload | {"kafka_key": key}))
    assert isinstance(answer, Malformed)
    assert f"{answer.path.removeprefix('$.')}: {answer.reason}" == message


@pytest.mark.parametrize("field", ["correction_key", "reason", "authorized_by"])
def test_the_words_of_a_correction_too(corrector: Conn, writer: Conn, field: str) -> None:
    record(writer)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"{field}: {re.escape(SAID)}"):
        correct(corrector, **{field: "because\u202e"})


@pytest.mark.parametrize("name", ["tenant_id", "key", "metric"])
def test_the_contract_says_the_same(name: str) -> None:
    rules = Draft202012Validator(contract("shared")["$defs"][name])
    refused = {point for point in POINTS if not rules.is_valid(f"a{chr(point)}b")}
    assert refused == REFUSED | ({ord("#")} if name == "tenant_id" else set())
