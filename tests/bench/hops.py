"""Where an event spends its time between its commit and Stripe: what each hop wrote down."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg
from confluent_kafka import Consumer, TopicPartition

from streams import topics
from tests.bench.stack import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMES: Final = ("commit to log", "log to ledger", "ledger to claim", "claim to accepted")
FROZEN: Final = b"""
SELECT m.value, extract(epoch FROM e.created_at)::float8, extract(epoch FROM m.created_at)::float8
FROM ledger.meter_event AS m JOIN ledger.meter_log AS e ON e.entry_id = m.first_entry_id
WHERE m.event_name = %s
"""


def hops_ms(
    ledger_dsn: str, bootstrap: str, metric: str, ends: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """Medians by hop, of events that are told apart by their amounts.

    Args:
        ledger_dsn: owner of the ledger.
        bootstrap: the broker.
        metric: the meter, which publishes event by event.
        ends: amount → seconds of commit and of acceptance, by the clock that all parts share.
    """
    with psycopg.connect(ledger_dsn) as ledger:
        rows = ledger.execute(FROZEN, (metric,)).fetchall()
    in_log_s = dict(_logged(bootstrap, metric))
    steps = [
        (ends[value][0], in_log_s[value], entered_s, frozen_s, ends[value][1])
        for value, entered_s, frozen_s in rows
        if value in ends and value in in_log_s
    ]
    if not steps:
        return {}
    return {
        name: median(step[n + 1] - step[n] for step in steps) * 1_000
        for n, name in enumerate(NAMES)
    }


def _logged(bootstrap: str, metric: str) -> Iterator[tuple[str, float]]:
    """Amount of each event, and when the log took it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-reader",
            "enable.partition.eof": True,
            "log_level": 3,
        }
    )
    left: set[int | None] = set(range(PARTITIONS))
    consumer.assign([TopicPartition(topics.EVENTS, number, 0) for number in range(PARTITIONS)])
    try:
        while left:
            for message in consumer.consume(5_000, 0.1):
                if message.error() is not None:
                    left.discard(message.partition())
                    continue
                event = msgspec.json.decode(message.value() or b"", type=dict[str, Any])
                if event.get("metric") == metric:
                    yield event["quantity"], message.timestamp()[1] / 1_000
    finally:
        consumer.close()
