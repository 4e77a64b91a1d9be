"""The same job as a Faust agent the way Faust's documentation teaches it.

A model, a table of ids, a table of hourly totals, one send per event; state on RocksDB with Faust's
own changelog topics. The tables are plain and not windowed, because a windowed table forgets by the
worker's clock, and the day of the benchmark is over.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import faust

SKEW_MAX: Final = timedelta(hours=24)
GROUP_VARIABLE: Final = "BENCH_GROUP"
BOOTSTRAP_VARIABLE: Final = "BENCH_BOOTSTRAP"
SOURCE_VARIABLE: Final = "BENCH_SOURCE"
OUTPUTS_VARIABLE: Final = "BENCH_OUTPUTS"
PARTITIONS: Final = 12
SEEN: Final = "seen"
TOTALS: Final = "totals"
TABLES: Final = (SEEN, TOTALS)


class Usage(faust.Record, serializer="json"):
    """One outbox row."""

    v: int
    type: str
    source: str
    event_id: str
    tenant_id: str
    event_key: str
    kafka_key: str
    shard: int
    metric: str
    quantity: str
    occurred_at: str
    received_at: str
    content: str
    content_version: int
    attributes: dict[str, Any]


def build(group: str, bootstrap: str, source: str, outputs: str) -> faust.App:
    """The app; `outputs` is the common beginning of its three output topics."""
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        store="rocksdb://",
        topic_partitions=PARTITIONS,
        topic_replication_factor=1,
    )
    # As bytes: with the model as value type an unreadable record could not be told from others.
    usage = app.topic(source, key_type=bytes, value_type=bytes, value_serializer="raw")
    accepted = app.topic(f"{outputs}.accepted", key_type=bytes)
    review = app.topic(f"{outputs}.review", key_type=bytes)
    dead = app.topic(f"{outputs}.dead", key_type=bytes, value_serializer="raw")
    seen = app.Table(SEEN, default=bool)
    totals = app.Table(TOTALS, default=lambda: [0, "0"])

    async def admit(stream: Any) -> None:
        async for key, raw in stream.items():
            try:
                event = Usage.loads(raw)
                amount = Decimal(event.quantity)
                occurred = datetime.fromisoformat(event.occurred_at)
                received = datetime.fromisoformat(event.received_at)
            except (ValueError, TypeError, KeyError, InvalidOperation):
                await dead.send(key=key, value=raw)
                continue
            if event.event_id in seen:
                continue
            seen[event.event_id] = True
            if received - occurred > SKEW_MAX:
                await review.send(key=key, value={"reason": "late", "event": event.asdict()})
                continue
            hour = occurred.strftime("%Y-%m-%dT%H")
            series = f"{event.tenant_id} {event.metric} {hour}"
            count, total = totals[series]
            totals[series] = [count + 1, str(Decimal(total) + amount)]
            await accepted.send(key=key, value={"window": hour, "event": event.asdict()})

    app.agent(usage, name="admit")(admit)
    return app


def main() -> None:
    """Runs Faust's own command line on the app that the environment describes."""
    names = (GROUP_VARIABLE, BOOTSTRAP_VARIABLE, SOURCE_VARIABLE, OUTPUTS_VARIABLE)
    build(*(os.environ[name] for name in names)).main()


if __name__ == "__main__":
    main()
