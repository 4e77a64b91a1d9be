"""A record that kills workers is found and set apart; nothing else is slowed down for it.

What is known travels with the partition, as metadata of the group's offset, because the worker that
knew it is dead. A mark is written before a chunk is handed over and means "someone is trying this";
finding it again, with no offset settled since, means that whoever tried did not come back. An idle
partition hands nothing over, so it is never marked, however often it moves.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

SINGLE_FROM_START: Final = 3
"""The start without progress from which the records are handed over one by one."""
SUSPECT_FROM_TRY: Final = 3
"""The try of one record alone from which it is only parked, not decoded: it killed twice."""
HOLD_FROM_TRY: Final = 5
"""The try from which not even parking helped, and the partition is held."""


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the last worker was about to do."""

    applied: int
    """Applied offset at that moment; another one now means progress."""
    starts: int
    """How many workers began here without settling anything."""
    until: int
    """Greatest offset any of them had in hand: behind it nobody has died yet."""
    trying: int = -1
    """Offset handed over alone; -1 when it was a whole chunk."""
    tries: int = 0
    """How many workers tried that offset alone."""
    decided: bool = False
    """A person's decision has let it be tried again already, and it is tried so once."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Hand the chunk over as it is; write the mark first, if there is one to write."""

    mark: Mark | None


@dataclass(frozen=True, slots=True)
class Alone:
    """Hand the first record over alone, with the mark written first."""

    mark: Mark
    suspect: bool


@dataclass(frozen=True, slots=True)
class Held:
    """Hand nothing over: a person has to look at the first record."""

    reason: str
    decided: bool = False
    """The decision on it did not help, so nobody is to be asked for one."""


Plan = Whole | Alone | Held


class Isolation:
    """How one assigned partition is to be handed over; one object per assignment."""

    def __init__(self, mark: Mark | None) -> None:
        """Begin an assignment with the mark found in the group's offset."""
        self._mark = mark
        self._marked_here = False

    @property
    def mark(self) -> Mark | None:
        """The mark that is written now, as far as this worker knows."""
        return self._mark

    def after(self, applied: int) -> Mark | None:
        """What a commit of progress must carry: the mark, while records are handed over alone."""
        mark = self._mark
        if mark is not None and mark.starts >= SINGLE_FROM_START and applied < mark.until:
            return mark
        return None

    def at(self, applied: int) -> Mark | None:
        """What a commit without progress must leave as it is."""
        if self._mark is not None and self._mark.applied == applied:
            return self._mark
        # Between two records handed over alone: the mark is of the one that was settled.
        return self.after(applied)

    def plan(self, applied: int, offset: int, last: int) -> Plan:
        """What to do with a chunk.

        Args:
            applied: applied offset of the table.
            offset: offset of the chunk's first record.
            last: offset of its last record.
        """
        mark = self._mark
        stuck = mark is not None and mark.applied == applied
        if mark is not None and mark.starts >= SINGLE_FROM_START and applied < mark.until:
            return self._alone(mark, applied, offset)
        if self._marked_here:
            return Whole(None)
        starts = mark.starts + 1 if mark is not None and stuck else 1
        until = max(last, mark.until) if mark is not None and stuck else last
        fresh = Mark(applied, starts, until)
        if starts >= SINGLE_FROM_START:
            return self._alone(fresh, applied, offset)
        return Whole(fresh)

    def marked(self, mark: Mark) -> Mark | None:
        """The mark of a plan is written; returns the one it replaced, to undo it."""
        before = self._mark
        self._mark = mark
        self._marked_here = True
        return before

    def resumed(self) -> "Isolation":
        """What is left of it when the partition goes on, because a person has decided so.

        A record that was given up is tried again as it was last, undecoded: whatever was decided on
        it, decoding it has killed. Once: the decision stands for ever, and would end worker after
        worker. Anything else is forgotten.
        """
        mark = self._mark
        if mark is None or mark.trying < 0 or mark.tries < HOLD_FROM_TRY - 1:
            return Isolation(None)
        if mark.decided:
            return Isolation(mark)
        return Isolation(msgspec.structs.replace(mark, tries=SUSPECT_FROM_TRY - 1, decided=True))

    def undone(self, before: Mark | None) -> None:
        """The mark was taken back: what stopped the chunk was no record of it."""
        self._mark = before
        self._marked_here = False

    def _alone(self, mark: Mark, applied: int, offset: int) -> Plan:
        again = mark.trying == offset and mark.applied == applied
        tries = mark.tries + 1 if again else 1
        if tries >= HOLD_FROM_TRY and mark.decided:
            return Held(
                f"the record at offset {offset} ended workers even after it was decided to skip "
                "it, so it is tried no more. Once there are workers that it does not end: stop all "
                "of this group, remove its offset of this partition (`kafka-consumer-groups "
                "--delete-offsets`; positions are never read from there), start the new ones",
                decided=True,
            )
        if tries >= HOLD_FROM_TRY:
            return Held(
                f"the record at offset {offset} ended {mark.tries} workers, the last "
                f"{HOLD_FROM_TRY - SUSPECT_FROM_TRY} of them although it was not decoded: "
                "`tailrace held skip` tries it again, undecoded, as a dead letter"
            )
        tried = msgspec.structs.replace(
            mark, applied=applied, trying=offset, tries=tries, decided=again and mark.decided
        )
        return Alone(tried, suspect=tries >= SUSPECT_FROM_TRY)
