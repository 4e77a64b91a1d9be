"""Does a topic have the partitions that everybody thinks it has? Asked before state is used.

Three must agree: the broker, this worker's settings, and what a person made known of growths.
"""

import msgspec

from streams.engine.before import LedgerSilent
from streams.engine.errors import PartitionCountChanged
from streams.engine.layout import Layout
from streams.engine.log_guard import TopicLife
from streams.engine.recovery_needs import Recovery
from streams.engine.table import PartitionTable


def life_of(needs: Recovery, topic: str) -> TopicLife:
    """The topic's present life. Blocks.

    Raises:
        PartitionCountChanged: it has another count than this worker was set up for.
        LogUnknown, KafkaException: as `TopicInquiry.life`.
    """
    life = needs.inquiry.life(topic)
    if life.partitions != needs.partitions:
        raise PartitionCountChanged(
            f"topic {topic} has {life.partitions} partitions, {needs.partitions} are configured: "
            "keys are at home elsewhere now. If `tailrace topics grow` made them more, set "
            f"TAILRACE_PARTITIONS={life.partitions} and restart this worker"
        )
    return life


def layout_of(needs: Recovery, partition: int) -> Layout:
    """How the source topic came to a partition. Blocks.

    Raises:
        PartitionCountChanged: it got more partitions, and nobody made that known.
        LedgerSilent: nobody can say now.
        LogUnknown, KafkaException: as `TopicInquiry.life`.
    """
    life = life_of(needs, needs.topic)
    layout = needs.layout(life.topic_id, life.partitions, partition)
    if layout is None:
        raise LedgerSilent(f"whether topic {needs.topic} was grown")
    if layout.partitions != life.partitions:
        raise PartitionCountChanged(
            f"topic {needs.topic} has {life.partitions} partitions, the ledger knows of "
            f"{layout.partitions}: `tailrace topics grow --partitions {life.partitions}` makes it "
            "known, then restart this worker"
        )
    return layout


def follow_count(table: PartitionTable, layout: Layout) -> PartitionTable:
    """The table, which knows the count of now also where it was made before its topic grew.

    Raises:
        PartitionCountChanged: it was made with a count that the topic never had.
    """
    meta = table.meta
    if meta.partitions not in {count for _, count in layout.counts}:
        raise PartitionCountChanged(
            f"{table.log}: the state here was made with {meta.partitions} partitions, the topic "
            f"has {layout.partitions}: keys are at home elsewhere now"
        )
    if meta.partitions != layout.partitions:
        grown = msgspec.structs.replace(meta, partitions=layout.partitions)
        table.replace(lambda _: None, grown)
    return table
