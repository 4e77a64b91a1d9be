"""What `tailrace export` writes: data sets, their columns, and what sums up a file of each."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    INT = "int"
    BIG = "big"
    """A whole number of up to 38 digits."""
    FLAG = "flag"
    INSTANT = "instant"
    """UTC, in microseconds."""


class DataSet(NamedTuple):
    """One kind of file. `units` and `digest` name the columns that the manifest sums."""

    name: str
    columns: tuple[tuple[str, Kind], ...]
    units: str
    digest: str | None = None


class Name(StrEnum):
    """The data sets."""

    ACCEPTED = "accepted"
    LEVELS = "levels"
    ENTRIES = "entries"
    METER_EVENTS = "meter_events"
    SETTLEMENTS = "settlements"


def _columns(text: str) -> tuple[tuple[str, Kind], ...]:
    """`name:kind name:kind …`; without a kind it is text."""
    parts = (word.partition(":") for word in text.split())
    return tuple((name, Kind(kind or "text")) for name, _, kind in parts)


DATA_SETS: Final = {
    Name.ACCEPTED: DataSet(
        "accepted",
        _columns(
            "event_id source tenant_id event_key type metric quantity units:int "
            "occurred_at:instant received_at:instant window_start:instant window_end:instant "
            "catalogue_version:int source_partition:int source_offset:int content attributes"
        ),
        "units",
        "content",
    ),
    Name.LEVELS: DataSet(
        "levels",
        _columns(
            "tenant_id metric catalogue_version:int window_start:instant window_end:instant "
            "shard:int log_id partition:int count:int total:big digest held:flag"
        ),
        "total",
        "digest",
    ),
    Name.ENTRIES: DataSet(
        "entries",
        _columns(
            "entry_id:int kind tenant_id metric catalogue_version:int window_start:instant "
            "window_end:instant shard:int revision:int delta:int state meter_event_id:int event_id "
            "target_event_id occurred_at:instant actor reason reference created_at:instant"
        ),
        "delta",
    ),
    Name.METER_EVENTS: DataSet(
        "meter_events",
        _columns(
            "meter_event_id:int customer event_name window_start:instant window_end:instant "
            "units:int value timestamp_s:int identifier generation:int state dead_kind "
            "attempts_used:int possibly_executed:flag superseded_by:int created_at:instant"
        ),
        "units",
    ),
    Name.SETTLEMENTS: DataSet(
        "settlements",
        _columns(
            "meter_event_id:int identifier customer event_name window_start:instant units:int "
            "state settled_at:instant attempts:int http_status:int request_id worker"
        ),
        "units",
    ),
}
"""In the order of the journey. All are divided by the day, in UTC, in which the window begins."""
