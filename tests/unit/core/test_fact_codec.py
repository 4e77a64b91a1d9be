"""Facts at rest come back as they were, or not at all."""

import msgspec
import pytest

from streams.core.fact import CanaryFact, CorrectionFact, EventFact, ParkedFact, Series
from streams.core.fact_codec import StoredFact, decode, encode
from tests.support.events import T0_US

SERIES = Series("acme", "api_calls", 1, T0_US, T0_US + 1, 0)
ID = bytes(range(16))
TOP = (1 << 128) - 1
FACTS = [
    EventFact(ID, TOP, SERIES, T0_US, 10**15 - 1, 2**62),
    CorrectionFact(ID, 0, SERIES, -T0_US, -(10**15) + 1, "fix", ID, "why", "who", 1),
    CorrectionFact(ID, 1, SERIES, T0_US, 0, "fix", None, "why", "who", 1),
    ParkedFact(
        "review", "late", 1, ID, TOP, "orders", "acme", "jobs", 7, SERIES, 1, 2, "{}", b"\xff"
    ),
    ParkedFact(
        "dead", "malformed", 1, None, None, None, None, None, None, None, None, None, "{}", b""
    ),
    CanaryFact("orders", 3, "token", T0_US, 9),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_comes_back(fact: StoredFact) -> None:
    assert decode(encode(fact)) == fact


def test_what_this_code_did_not_write_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b"")
    with pytest.raises(KeyError):
        decode(msgspec.msgpack.encode(("novelty", {})))
    with pytest.raises(TypeError):
        decode(msgspec.msgpack.encode(("canary", {"source": "orders", "colour": 1})))
