"""A decided chunk → packed log → table → done: the order of effects, as code."""

from streams.engine.chunk import Chunk
from streams.engine.packed_log import PackedLog
from streams.engine.settlement import Settlement


async def settle(chunk: Chunk, settlement: Settlement, packed_log: PackedLog) -> None:
    """Settle a chunk whose outputs are on the broker.

    The packed record comes first: a table that has applied a chunk must never be the only one
    that knows it. After a crash between the two, recovery reads the packed record and the chunk
    counts as settled.

    Raises:
        ChunkTooLarge, DeliveryFailed: nothing was moved; give it to `chunk.failed`.
        TableClosed, SettlementRefused, StateUnavailable: the same.
    """
    await packed_log.append(chunk.table, settlement)
    chunk.step("packed_produced")
    chunk.table.settle(settlement)
    chunk.step("batch_written")
    chunk.settled()
