"""Topic ids and the UUIDs that the ledger keeps them under."""

import pytest
from confluent_kafka import Uuid

from streams.core.identity import log_uuid, topic_id_of


@pytest.mark.parametrize("halves", [(0, 1), (-1, -8), (1 << 62, -(1 << 63)), (-77, 12345)])
def test_a_topic_id_comes_back_as_the_client_shows_it(halves: tuple[int, int]) -> None:
    shown = str(Uuid(*halves))
    assert topic_id_of(log_uuid(shown)) == shown
