"""Readings: folded, stored, merged, told."""

import struct

import pytest
from msgspec.structs import replace

from streams.core.fact import CellFact, LevelFact, Series
from streams.core.level import (
    CellKey,
    Key,
    Reading,
    Tally,
    cell_fact,
    decode_key,
    decode_reading,
    encode_key,
    encode_reading,
    level_fact,
    newer,
)
from streams.core.mark import content_of, earlier, encode_mark, from_version_1, same_content
from tests.support.events import T0_US

SERIES = Series("acme", "api_calls", 1, T0_US, T0_US + 1, 3)
CELL = CellKey("orders", T0_US, "accepted")
TOP = (1 << 128) - 1


def test_a_tally_goes_onto_what_stood() -> None:
    tally = Tally(9)
    tally.add(9, 5, TOP)
    tally.add(11, -2, 3)
    assert tally.onto(None) == Reading(2, 3, 2, 9, 11)
    assert tally.onto(Reading(10, 100, TOP, 4, 7)) == Reading(12, 103, 1, 4, 11)


@pytest.mark.parametrize("key", [SERIES, CELL, CellKey("", 0, ""), replace(SERIES, tenant_id="é")])
def test_a_key_comes_back(key: Key) -> None:
    back = decode_key(encode_key(key))
    assert back == key
    assert type(back) is type(key)


@pytest.mark.parametrize(
    "raw", [b"", b"x", b"s", b"c", b"s\x93", encode_key(CELL).replace(b"c", b"s", 1)]
)
def test_a_foreign_key_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"reading key: starts with|truncated|Expected"):
        decode_key(raw)


@pytest.mark.parametrize("total", [0, -1, 10**15, -(10**24), 2**126])
def test_a_reading_comes_back_however_large(total: int) -> None:
    reading = Reading(2**60, total, TOP, 2**63, 5)
    assert decode_reading(encode_reading(reading)) == reading
    assert len(encode_reading(reading)) == 56


def test_a_reading_of_another_width_is_refused() -> None:
    with pytest.raises(struct.error):
        decode_reading(bytes(48))


def test_of_two_readings_the_greater_count_is_kept() -> None:
    small, great = (encode_reading(Reading(n, 300 - n, 0, 0, 0)) for n in (255, 256))
    assert newer(small, great) == newer(great, small) == great
    told = encode_reading(Reading(256, 44, 0, 0, 256))
    assert newer(told, great) == told


def test_of_two_marks_the_first_copy_is_kept() -> None:
    contents = {255: b"z" * 8, 256: b"a" * 8}
    marks = [encode_mark(content, "accepted", offset) for offset, content in contents.items()]
    assert earlier(*marks) == earlier(*marks[::-1]) == marks[0]
    assert content_of(marks[1]) == b"a" * 8
    assert [same_content(marks[1], (letter * 16).encode()) for letter in "az"] == [True, False]


def test_a_mark_that_had_its_content_first_is_the_same_mark() -> None:
    laid_out_before = b"contents" + b"r" + (258).to_bytes(8, "big")
    assert from_version_1(laid_out_before) == encode_mark(b"contents", "review", 258)


def test_the_ledger_is_told_readings() -> None:
    reading = Reading(3, 12, 99, 7, 2)
    assert level_fact(SERIES, reading) == LevelFact(SERIES, 3, 12, 99, 7)
    assert cell_fact(CELL, reading) == CellFact("orders", T0_US, "accepted", 3, 99, 7)
