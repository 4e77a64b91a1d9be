"""A decided chunk → packed log → table → done: the order of effects, as code."""

from streams.engine.chunk import Chunk
from streams.engine.packed_log import PackedLog
from streams.engine.settlement import Settlement


async def write(chunk: Chunk, settlement: Settlement, packed_log: PackedLog) -> None:
    """Write what a chunk, or the part of it that may be decided now, leaves behind.

    Its outputs are on the broker. The packed record comes first: a table that has applied a chunk
    must never be the only one that knows it. After a crash between the two, recovery reads the
    packed record and the chunk counts as settled.

    Raises:
        ChunkTooLarge, DeliveryFailed: nothing was moved; give it to `chunk.failed`.
        TableClosed, SettlementRefused, StateUnavailable: the same.
    """
    await packed_log.append(chunk.table, settlement)
    chunk.step("packed_produced")
    chunk.table.settle(settlement)
    chunk.step("batch_written")


async def settle(chunk: Chunk, settlement: Settlement, packed_log: PackedLog) -> None:
    """Write what a whole chunk leaves behind, and be done with it. Raises what `write` raises."""
    await write(chunk, settlement, packed_log)
    chunk.settled()
