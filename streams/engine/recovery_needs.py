"""What recovering needs, the same for every partition."""

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer
from rocksdict import Cache

from streams.engine.absorb import MergeRules
from streams.engine.before import Told, nothing_before
from streams.engine.data_dir import DataDirectory
from streams.engine.layout import LayoutOf, ungrown
from streams.engine.log import LogId
from streams.engine.log_guard import TopicInquiry


@dataclass(frozen=True, slots=True)
class Recovery:
    """What recovering needs, the same for every partition."""

    topic: str
    """Source topic."""
    packed_topic: str
    """Packed log; partition n holds the state of source partition n."""
    partitions: int
    """Partition count both must have."""
    directory: DataDirectory
    """Where tables lie."""
    width_ms: int
    """Width of a generation."""
    reach_back_ms: int
    """How far back state must reach: what may still change or be looked up, and a day."""
    rules: MergeRules
    """How values of one key become one."""
    consumer: Callable[[], Consumer]
    """Makes a consumer that is no member of the group."""
    inquiry: TopicInquiry
    """Asks for topic ids."""
    cache: Cache
    """Block cache shared by the tables of this process."""
    acknowledged: Callable[[LogId], int]
    """Source offset up to which the ledger has everything; -1 when it does not know the log or
    cannot be asked: then facts are sent again. Blocks, is called on a recovery thread."""
    layout: LayoutOf = ungrown
    """How the topic came to its partitions. Called likewise."""
    before: Callable[[LogId], Told | None] = nothing_before
    """Earlier logs that a log continues by a person's decision; None when the ledger cannot be
    asked. Called likewise."""
