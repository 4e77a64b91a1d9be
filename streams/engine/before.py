"""The logs that came before: what a log remembers of those that it continues.

A topic that was lost and created anew is another log. Once a person has opened it in the ledger, it
goes on with what the ledger holds of the earlier ones: their ids stay known, so that copies count
nothing. Whatever the ledger lacks is not remembered, and counts when the source sends it again.

A partition that came when its topic grew is a log of its own, too. It remembers what the partition
held whose keys it took over, up to where they left it; that partition lives on, and may not have
come so far yet.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from streams.engine.errors import EarlierBehind
from streams.engine.log import LogId
from streams.engine.packed import PackedRecord
from streams.engine.ranges import Coverage


class Earlier(NamedTuple):
    """One earlier log, as far as a partition has to remember it."""

    partition: int
    """Its partition; another one than the present log's, where a topic grew."""
    last: int
    """Source offset up to which everything must be remembered; below 0 for nothing."""
    held: int
    """Source offset up to which the ledger holds its facts; below 0 for none."""
    lives: bool = False
    """It lives on beside this one: what it holds beyond `last` counts there, and never here."""


Told = Mapping[str, Earlier]
"""Topic ids of earlier logs, the latest first → what has to be remembered of each."""

_NOTHING: Final = Earlier(-1, -1, -1)
CONTINUE: Final = (
    "To go on: create the topic anew (delete it if it is there, then `tailrace topics apply`), "
    "`tailrace topics adopt`, start the workers again, then `tailrace connector repair "
    "--even-if-healthy`: what is counted already stays known, the rest comes again from the source"
)
"""The way out of every log that cannot be read on."""


def nothing_before(_log: LogId) -> Told:
    """For a log that continues none."""
    return {}


class LedgerSilent(Exception):  # noqa: N818  # caught by the recovery, which asks again
    """The ledger must say whether a log continues another, and does not answer now."""


class Before:
    """What one partition's packed log holds of earlier logs; for one attempt at recovery."""

    def __init__(self, told: Told | None) -> None:
        """Args: what the ledger says of earlier logs; None when it did not answer."""
        self._told = told
        self._covered: dict[str, Coverage] = {}
        self._times: dict[tuple[str, int], int] = {}

    def continues(self, topic_id: str) -> bool:
        """Whether the present log goes on from this one.

        Raises:
            LedgerSilent: nobody can say now.
        """
        if self._told is None:
            raise LedgerSilent(f"whether the log continues that of topic id {topic_id}")
        return topic_id in self._told

    def forgotten(self, continued: Collection[str]) -> list[str]:
        """Earlier logs of which the ledger holds something and a table that was kept knows nothing.

        A silent ledger names none: what the table has was settled with an answer.

        Args:
            continued: topic ids that were asked for when the table was made.
        """
        told = self._told or {}
        return [each for each in told if told[each].last >= 0 and each not in continued]

    @property
    def continued(self) -> tuple[str, ...]:
        """Topic ids of all earlier logs, for a table that was made with what is known of them."""
        return tuple(self._told or ())

    def begin_anew(self) -> None:
        """The table is emptied: what was read into it counts as unread."""
        self._covered.clear()
        self._times.clear()

    def remember(self, record: PackedRecord, topic_id: str) -> PackedRecord | None:
        """An earlier log's packed record as the present log knows it: its ids, and nothing else.

        None when nothing of it is to be remembered: of another partition, or, of a log that ended,
        not held by the ledger as a whole.
        """
        told = (self._told or {}).get(record.topic_id, _NOTHING)
        if record.partition != told.partition:
            return None
        if record.first > told.last if told.lives else record.last > told.held:
            return None
        covered = self._covered.setdefault(record.topic_id, Coverage())
        if covered.add(record.first, record.last):
            self._times[record.topic_id, record.first] = record.timestamp_ms_max
        return msgspec.structs.replace(
            record,
            topic_id=topic_id,
            first=-1,
            last=-1,
            anchor=b"",
            levels=[],
            unsent=[],
            confirmed=-1,
        )

    def missing(self, since_ms: int) -> str | None:
        """What is not remembered though it must be; None when everything is.

        Args:
            since_ms: log append time from which on everything must be known.

        Raises:
            LedgerSilent: nobody can say now whether there is anything to remember.
            EarlierBehind: a log that lives on lacks it, which is for its own workers to write.
        """
        if self._told is None:
            raise LedgerSilent("which earlier logs this one continues")
        for topic_id, told in self._told.items():
            if told.last < 0:
                continue
            newest = self._covered.get(topic_id, Coverage()).newest()
            first, last = newest or (0, -1)
            log = f"of partition {told.partition} of the log before (topic id {topic_id})"
            if last < told.last:
                return self._lacking(told, f"offsets {last + 1} to {told.last} {log}")
            if self._times[topic_id, first] <= since_ms:
                return None
            if first > 0:
                return self._lacking(told, f"what lies before offset {first} {log}")
        return None

    @staticmethod
    def _lacking(told: Earlier, what: str) -> str:
        if not told.lives:
            return what
        raise EarlierBehind(
            f"the packed log lacks {what}. Usually that partition is still at work, and this one "
            "goes on by itself. Where it is settled up to there, the packed log was cut: delete "
            "that partition's state on its worker's disk while the worker is stopped, and it is "
            "written again"
        )

    def elsewhere(self, partition: int) -> list[int]:
        """Other partitions of the packed log that hold something of earlier logs."""
        found = (each.partition for each in (self._told or {}).values() if each.last >= 0)
        return sorted(set(found) - {partition})

    def covers(self, partition: int) -> bool:
        """Whether everything is known that a partition of the packed log has for this one."""
        for topic_id, told in (self._told or {}).items():
            newest = self._covered.get(topic_id, Coverage()).newest() or (0, -1)
            if told.partition == partition and (newest[0] > 0 or newest[1] < told.last):
                return False
        return True
