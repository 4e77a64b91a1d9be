from dataclasses import replace
from typing import Any

import pytest

from streams.engine.errors import SettlementRefused
from streams.engine.settlement import unsent_key, unsent_offset
from tests.unit.engine.build import id_of, settlement


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"first": 5, "last": 4, "seen": [], "unsent": []}, "0 <= first <= last"),
        ({"anchor": b"short"}, "anchor: 16 bytes"),
        ({"seen": [(id_of("a"), b"1"), (id_of("b"), b"22")]}, "values all of one length"),
        ({"pinned": [(id_of("c"), b"1")]}, "values all of one length"),
        ({"seen": [(b"short", b"1")]}, "ids of 16 bytes"),
        ({"unsent": [(unsent_key(99, 0), b"")]}, r"an offset in \[first, last\]"),
        ({"unsent": [(b"short", b"")]}, "keys of 12 bytes"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SettlementRefused, match=says):
        replace(settlement(0, 3), **changes).check()


def test_keys_of_facts_sort_by_offset_then_sequence() -> None:
    keys = [unsent_key(offset, n) for offset in (0, 1, 255, 256, 2**40) for n in (0, 1, 300)]
    assert keys == sorted(keys)
    assert unsent_offset(unsent_key(2**40, 7)) == 2**40
