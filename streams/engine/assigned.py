"""One partition while it is assigned to this worker."""

import threading
from dataclasses import dataclass, field

from streams.engine.poison import Isolation
from streams.engine.table import PartitionTable


@dataclass(slots=True)
class Assigned:
    """What the feeder knows of a partition; touched by the feeder's thread alone."""

    partition: int
    """Its number."""
    records_max: int
    """Records in one chunk, at most; halved when a packed record did not fit."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when the recovery under way must hand over nothing."""
    table: PartitionTable | None = None
    """Its state; None while it is recovered or refused."""
    isolation: Isolation = field(default_factory=lambda: Isolation(None))
    """What is known of records that kill."""
    recovering: bool = False
    """A recovery is under way."""
    paused: bool = False
    """The operator asked for a pause."""
    held: str | None = None
    """Why it is held; None when it is not."""
    waits: bool = False
    """It is held until another partition has come far enough, and tried again now and then."""
    must_seek: bool = True
    """Records were dropped: nothing fetched counts until the position is set again."""
    committed: int = -2
    """Applied offset last committed to the group; below -1 for none."""
    noted: str = ""
    """The note that was committed with it."""
    found_note: str = ""
    """The note that it carried when it came."""

    high: int = -1
    """Offset after the log's last record, as of the latest fetch; -1 for unknown."""

    @property
    def is_fed(self) -> bool:
        """Whether its records may be handed over now."""
        return (
            self.table is not None and not self.paused and self.held is None and not self.must_seek
        )
