"""What a partition table knows about itself: one value, written in every batch."""

from typing import Final

import msgspec

from streams.engine.errors import StateDamaged
from streams.engine.generations import Generation
from streams.engine.log import LogId

FORMAT: Final = 2
"""Format of the table; another one is rebuilt from the packed log."""


class Meta(msgspec.Struct, frozen=True):
    """State of the state. Replaced whole, in the same write as what it describes."""

    format: int
    """Format of the table."""
    complete: bool
    """False while it is being rebuilt; such a table is thrown away at the next start."""
    topic: str
    """Source topic."""
    topic_id: str
    """Life of the source topic."""
    partition: int
    """Source partition."""
    partitions: int
    """Partition count of the source topic, pinned when the table was made."""
    width_ms: int
    """Width of a generation; another horizon means another table."""
    applied: int = -1
    """Last source offset settled; -1 for none."""
    anchor: bytes = b""
    """Fingerprint of the record at `applied`; empty when that record was never read."""
    log_time_ms: int = 0
    """Greatest log append time settled."""
    acknowledged: int = -1
    """Last source offset whose facts the ledger has acknowledged."""
    levels: int = 0
    """How many levels there must be."""
    unsent: int = 0
    """How many unsent facts there must be."""
    pinned: int = 0
    """How many ids are kept for ever."""
    catalogue_hash: bytes = b""
    """Rules that judged the last chunk."""
    floor_us: int = -1
    """Greatest `received_at` in forgotten generations; -1 for none."""
    generations: tuple[Generation, ...] = ()
    """What is remembered, oldest first."""
    packed_topic_id: str = ""
    """Life of the packed log that was read."""
    packed_next: int = 0
    """Next offset of the packed log to read at recovery."""
    confirmed: int = -1
    """Greatest offset that any worker so far knew the ledger to have, by the packed log."""
    continued: tuple[str, ...] = ()
    """Topic ids of the earlier logs that were asked for when the table was made."""

    @property
    def log(self) -> LogId:
        """The source log."""
        return LogId(self.topic, self.topic_id, self.partition)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Meta)


def encode(meta: Meta) -> bytes:
    """Bytes of a meta value."""
    return _encoder.encode(meta)


def decode(data: bytes) -> Meta:
    """Read a meta value.

    Raises:
        StateDamaged: it cannot be read, or has another format.
    """
    try:
        meta = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise StateDamaged(f"table meta cannot be read: {error}") from error
    if meta.format != FORMAT:
        raise StateDamaged(
            f"table has format {meta.format}, this release reads {FORMAT}: it is set aside as "
            "*.corrupt-<n> and rebuilt from the packed log"
        )
    return meta
