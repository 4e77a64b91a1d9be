"""The logs that came before: what a new log remembers of the one it continues.

A topic that was lost and created anew is another log. Once a person has opened it in the ledger, it
goes on with what the ledger holds of the earlier ones: their ids stay known, so that copies count
nothing. Whatever the ledger lacks is not remembered, and counts when the source sends it again.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from streams.engine.log import LogId
from streams.engine.packed import PackedRecord
from streams.engine.ranges import Coverage

Told = Mapping[str, int]
"""Topic ids of earlier logs, the latest first → the offset up to which the ledger holds them."""

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
        return [each for each in told if told[each] >= 0 and each not in continued]

    @property
    def continued(self) -> tuple[str, ...]:
        """Topic ids of all earlier logs, for a table that was made with what is known of them."""
        return tuple(self._told or ())

    def remember(self, record: PackedRecord, topic_id: str) -> PackedRecord | None:
        """An earlier log's packed record as the present log knows it: its ids, and nothing else.

        None when the ledger does not hold all of it.
        """
        told = -1 if self._told is None else self._told.get(record.topic_id, -1)
        if record.last > told:
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
        """
        if self._told is None:
            raise LedgerSilent("which earlier logs this one continues")
        for topic_id, told in self._told.items():
            if told < 0:
                continue
            newest = self._covered.get(topic_id, Coverage()).newest()
            first, last = newest or (0, -1)
            if last < told:
                return f"offsets {last + 1} to {told} of the log before (topic id {topic_id})"
            if self._times[topic_id, first] <= since_ms:
                return None
            if first > 0:
                return f"what lies before offset {first} of the log before (topic id {topic_id})"
        return None
