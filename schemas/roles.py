"""The outbox from the point of view of a role: which functions it is there for.

What the migrations grant, said a second time; a test holds the two together. So a service can ask
with its own login, which may read no table, whether it is let in.
"""

from collections.abc import Mapping
from typing import Final, Literal

Role = Literal["metering_writer", "metering_corrector", "metering_ops"]

_FINDING: Final = ("find_conflicts(text, text)", "find_key(text, text)")

CALLS: Final[Mapping[Role, tuple[str, ...]]] = {
    "metering_writer": (
        "record_usage(text, text, numeric, text, timestamp with time zone, jsonb, text)",
        "record_usage_batch(jsonb)",
        "usage_batch_problems(jsonb)",
        *_FINDING,
    ),
    "metering_corrector": (
        "record_correction(text, text, numeric, text, text, text)",
        *_FINDING,
    ),
    "metering_ops": (
        *_FINDING,
        "emit_canaries(uuid)",
        "audit_minutes(timestamp with time zone, timestamp with time zone)",
        "identities(timestamp with time zone, timestamp with time zone)",
        "open_transactions()",
        "seal(timestamp with time zone[])",
        "sealed_changes(timestamp with time zone, timestamp with time zone)",
        "reemit(timestamp with time zone, timestamp with time zone, text)",
        "maintain(integer, integer)",
        "put_metric(text, integer, numeric, boolean)",
        "set_shards(text, integer)",
        "grow_partitions(integer)",
        "erasable(text)",
        "wire_time(timestamp with time zone)",
        "partition_of(text, integer)",
        "murmur2(bytea)",
    ),
}
"""By role, the signatures that it may call in schema `metering`."""
