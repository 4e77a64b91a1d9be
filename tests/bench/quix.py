"""The same job with quixstreams: a stateful callback, one state store with its changelog.

As fast as its documentation lets it be: values stay bytes, only the used fields are decoded, the
state is asked for bytes, a record leaves by a topic that is chosen for it and not by one branch per
topic, which would copy it. Runs in an environment of its own, so it imports nothing of ours.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from quixstreams import Application
from quixstreams.state.rocksdb import RocksDBOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

SKEW_MAX: Final = timedelta(hours=24)
ID_BYTES: Final = 16
"""A key of the state that is longer names a total."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Task(msgspec.Struct, frozen=True):
    """What it is told on its command line, as JSON."""

    bootstrap: str
    source: str
    outputs: str
    group: str
    data: str
    commit_s: float
    scales: dict[str, int]


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The fields that are used, and no others."""

    event_id: str
    tenant_id: str
    metric: str
    quantity: str
    occurred_at: datetime
    received_at: datetime


class Judge:
    """A record → the value that leaves, and the topic it leaves by; duplicates leave by none."""

    def __init__(self, scales: dict[str, int]) -> None:
        self.scales = scales
        self.decode = msgspec.json.Decoder(Usage).decode
        self.leaves_by = ""

    def __call__(self, value: bytes, state: Any) -> Sequence[bytes]:
        """Called for one record at a time, in their order."""
        try:
            event = self.decode(value)
            units = _units(event.quantity, self.scales[event.metric])
            identity = bytes.fromhex(event.event_id.replace("-", ""))
        except (ValueError, KeyError):
            self.leaves_by = "dead"
            return (value,)
        if state.exists(identity):
            return ()
        state.set_bytes(identity, b"1")
        if event.received_at - event.occurred_at > SKEW_MAX:
            self.leaves_by = "review"
            return (b'{"reason":"late","event":%b}' % value,)
        hour = event.occurred_at.isoformat()[:13]
        series = f"{event.metric} {hour}".encode()
        count, total = state.get_bytes(series, b"0 0").split()
        state.set_bytes(series, b"%d %d" % (int(count) + 1, int(total) + units))
        self.leaves_by = "accepted"
        return (b'{"window":"%b","event":%b}' % (hour.encode(), value),)


def _units(quantity: str, scale: int) -> int:
    whole, _, fraction = quantity.partition(".")
    return int(whole + fraction.ljust(scale, "0"))


def main() -> None:
    """Runs until it is told to end."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    app = Application(
        broker_address=task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        state_dir=task.data,
        commit_interval=task.commit_s,
        rocksdb_options=RocksDBOptions(compression_type="none"),
        producer_extra_config={"compression.type": "lz4", "linger.ms": 20},
        consumer_extra_config={"queued.max.messages.kbytes": 65_536},
        loglevel="WARNING",
    )
    kinds = {
        kind: app.topic(f"{task.outputs}.{kind}", value_serializer="bytes")
        for kind in ("accepted", "review", "dead")
    }
    judge = Judge(task.scales)
    frame = app.dataframe(app.topic(task.source, value_deserializer="bytes"))
    frame = frame.apply(judge, stateful=True, expand=True)
    frame.to_topic(lambda *_: kinds[judge.leaves_by])
    app.run()


if __name__ == "__main__":
    main()
