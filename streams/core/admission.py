"""Hops 2 to 4: a chunk of records and what the partition remembers → everything that follows.

In: records of one partition in offset order, a look-up of ids already known, the readings as they
stand, the catalogue. Out: one `Decided` with the outputs to produce, the state to write and the
facts to tell. Nothing given is changed, so a chunk that is not settled leaves no trace in memory.
"""

from collections.abc import Sequence
from typing import assert_never

from streams.core import hold, output
from streams.core.catalogue import RULES, Catalogue
from streams.core.decided import AwaitFresh, Decided, Hold, Place, SourceRecord
from streams.core.envelope import decode
from streams.core.event import (
    Canary,
    Conflict,
    Correction,
    Decoded,
    Malformed,
    Unsupported,
    UsageEvent,
    conflict_id,
    identity_of,
)
from streams.core.fact import CanaryFact, CorrectionFact, EventFact, Series
from streams.core.instant import MINUTE_US
from streams.core.level import CellKey, Tally
from streams.core.mark import content_of, encode_mark, same_content
from streams.core.parked import dead_item, review_item
from streams.core.verdict import (
    AHEAD_MAX_US,
    Accepted,
    AwaitCatalogue,
    Dead,
    Review,
    amount_of,
    judge,
    judge_correction,
)


def decide(
    records: Sequence[SourceRecord], place: Place, catalogue: Catalogue, *, fresh: bool
) -> Decided:
    """Decides records in offset order until the end or the first that must wait.

    Args:
        records: at least one, in offset order, none of them settled before.
        place: the partition and what it remembers.
        catalogue: the rule book as read from the ledger.
        fresh: whether that reading is younger than the fetch of these records.
    """
    decided = Decided(records[0].offset - 1)
    if catalogue.newest_rules() > RULES:
        reason = f"the catalogue asks for verdict rules {catalogue.newest_rules()}, this code has "
        decided.stop = Hold(records[0].offset, f"{reason}{RULES}: upgrade the workers")
        return decided
    admission = _Admission(place, catalogue, decided, fresh=fresh)
    contents = [
        None if record.offset == place.suspect else decode(record.key, record.value)
        for record in records
    ]
    admission.remember(contents)
    skips = place.skips
    for record, content in zip(records, contents, strict=True):
        if skips and record.offset in skips and (skip := hold.skip_of(record, skips)):
            admission.set_aside(record, content, hold.skipped(skip))
        elif content is None:
            admission.set_aside(record, content, hold.UNREAD)
        else:
            decided.stop = admission.take(record, content)
        if decided.stop is not None:
            break
        decided.last = record.offset
    admission.close()
    return decided


class _Admission:
    """Folds one chunk; lives for one call of `decide`."""

    def __init__(
        self, place: Place, catalogue: Catalogue, decided: Decided, *, fresh: bool
    ) -> None:
        self.place = place
        self.home, self.partition = place.home, place.partition
        self.catalogue = catalogue
        self.fresh = fresh
        self.decided = decided
        self.known: dict[bytes, bytes] = {}
        self.levels: dict[Series, Tally] = {}
        self.cells: dict[tuple[str, int, str], Tally] = {}

    def remember(self, contents: Sequence[Decoded | None]) -> None:
        """Asks the state for all identities of the chunk at once."""
        ids = [i for one in contents if one and (i := identity_of(one)) is not None]
        marks = self.place.lookup(ids)
        self.known = {i: mark for i, mark in zip(ids, marks, strict=True) if mark is not None}

    def take(self, record: SourceRecord, content: Decoded) -> Hold | AwaitFresh | None:
        """One record; a value when it and everything after it must wait."""
        key, offset, place = record.key or b"", record.offset, self.place
        home = self.home(key) if offset >= place.settled_at else place.home_before(key, offset)
        at_home = home == self.partition
        if isinstance(content, UsageEvent):  # nearly every record
            return self._usage(record, content) if at_home else hold.astray(record)
        match content:
            case Malformed(reason, path):
                self._dead(record, None, Dead(reason, path))
            case Unsupported():
                return hold.unsupported(record, content)
            case Correction() | Conflict() | Canary() if not at_home:
                return hold.astray(record)
            case Correction():
                return self._correction(record, content)
            case Conflict(event, first_content, of_correction):
                self._conflict(record, event, first_content, signed=of_correction)
            case Canary():
                self._canary(record, content)
            case _ as unreachable:
                assert_never(unreachable)
        return None

    def set_aside(self, record: SourceRecord, content: Decoded | None, dead: Dead) -> None:
        """Dead-letters a record whatever it says: by a decision, or because it was not read."""
        self._dead(record, hold.first_identity(content, self.known), dead)

    def close(self) -> None:
        """Puts what the chunk added onto the readings as they stood."""
        before, readings = self.place.readings, self.decided.readings
        for series, tally in self.levels.items():
            readings[series] = tally.onto(before.get(series))
        for parts, tally in self.cells.items():
            cell = CellKey(*parts)
            readings[cell] = tally.onto(before.get(cell))
            self.decided.counts[cell.verdict_class] += tally.records

    def _usage(self, record: SourceRecord, event: UsageEvent) -> AwaitFresh | None:
        mark = self.known.get(event.event_id)
        if mark is not None:
            self._again(record, event, mark, signed=False)
            return None
        verdict = judge(
            event,
            self.catalogue,
            self.place.floor_us,
            logged_at_us=record.timestamp_ms * 1000,
            fresh=self.fresh,
        )
        if isinstance(verdict, Accepted):
            self._accept(record, event, verdict)
            return None
        return self._not_accepted(record, event, verdict)

    def _correction(self, record: SourceRecord, correction: Correction) -> AwaitFresh | None:
        event = correction.event
        mark = self.known.get(event.event_id)
        if mark is not None:
            self._again(record, event, mark, signed=True)
            return None
        verdict = judge_correction(
            event, self.catalogue, above_limit=correction.above_limit, fresh=self.fresh
        )
        if isinstance(verdict, Accepted):
            self._accept_correction(record, correction, verdict)
            return None
        return self._not_accepted(record, event, verdict)

    def _not_accepted(
        self, record: SourceRecord, event: UsageEvent, verdict: Review | Dead | AwaitCatalogue
    ) -> AwaitFresh | None:
        match verdict:
            case Review():
                self._park_review(record, event, verdict)
            case Dead():
                self._dead(record, event, verdict)
            case AwaitCatalogue():
                return AwaitFresh(record.offset)
            case _ as unreachable:
                assert_never(unreachable)
        return None

    def _again(self, record: SourceRecord, event: UsageEvent, mark: bytes, *, signed: bool) -> None:
        """The identity was judged before; other content than then is a conflict."""
        if same_content(mark, event.content):
            self.decided.counts["duplicate"] += 1
        else:
            self._conflict(record, event, content_of(mark).hex(), signed=signed)

    def _accept(self, record: SourceRecord, event: UsageEvent, verdict: Accepted) -> None:
        offset, series, decided = record.offset, verdict.series, self.decided
        value = output.accepted(verdict, self.partition, offset, record.value or b"")
        decided.accepted.append((record.key, value))
        content = int.from_bytes(event.content, "big")
        if verdict.meter.publish == "window":
            tally = self.levels.get(series)
            if tally is None:
                tally = self.levels[series] = Tally(offset)
            tally.add(offset, verdict.units, content)
        else:
            fact = EventFact(
                event.event_id, content, series, event.occurred_at_us, verdict.units, offset
            )
            decided.facts.append((offset, fact))
        self._mark(record, event, event.event_id, "accepted", content)

    def _accept_correction(
        self, record: SourceRecord, correction: Correction, verdict: Accepted
    ) -> None:
        event = correction.event
        value = output.accepted(verdict, self.place.partition, record.offset, record.value or b"")
        self.decided.accepted.append((record.key, value))
        fact = CorrectionFact(
            event_id=event.event_id,
            content=int.from_bytes(event.content, "big"),
            series=verdict.series,
            occurred_at_us=event.occurred_at_us,
            delta_units=verdict.units,
            correction_key=correction.correction_key,
            target_event_id=correction.target_event_id,
            reason=correction.reason,
            authorized_by=correction.authorized_by,
            offset=record.offset,
        )
        self.decided.facts.append((record.offset, fact))
        self._mark(record, event, event.event_id, "correction", fact.content)

    def _canary(self, record: SourceRecord, canary: Canary) -> None:
        event, partition = canary.event, self.place.partition
        if event.event_id in self.known:
            self.decided.counts["duplicate"] += 1
            return
        # One that waited while the topic grew names the partition that its key had before.
        if canary.partition != partition and canary.partition not in self.place.origins:
            rule = f"a canary of partition {canary.partition} proves nothing on {partition}"
            self._dead(record, event, Dead(rule, "$.partition"))
            return
        fact = CanaryFact(
            event.source, partition, canary.token, event.received_at_us, record.offset
        )
        self.decided.facts.append((record.offset, fact))
        self._mark(record, event, event.event_id, "canary")

    def _conflict(
        self, record: SourceRecord, event: UsageEvent, first_content: str, *, signed: bool
    ) -> None:
        identity = conflict_id(event)
        if identity in self.known or self.place.lookup([identity])[0] is not None:
            self.decided.counts["duplicate"] += 1
            return
        rule = f"another content of this identity came first (content {first_content})"
        amount = amount_of(event, self.catalogue, signed=signed)
        self._park_review(record, event, Review("conflict", rule, *amount))

    def _park_review(self, record: SourceRecord, event: UsageEvent, verdict: Review) -> None:
        place, value = self.place, record.value or b""
        rendered = output.review(verdict, place.topic, place.partition, record.offset, value)
        self.decided.review.append((record.key, rendered))
        self.decided.facts.append((record.offset, review_item(record, event, verdict)))
        if verdict.reason == "conflict":
            self._mark(record, event, conflict_id(event), "conflict")
        else:
            self._mark(record, event, event.event_id, "review")

    def _dead(self, record: SourceRecord, event: UsageEvent | None, verdict: Dead) -> None:
        place = self.place
        rendered = output.dead_letter(
            verdict, place.topic, place.partition, record.offset, record.key, record.value
        )
        self.decided.dead_letter.append((record.key, rendered))
        self.decided.facts.append((record.offset, dead_item(record, event, verdict)))
        if event is None:
            self.decided.counts["dead"] += 1
        else:
            self._mark(record, event, event.event_id, "dead")

    def _mark(
        self,
        record: SourceRecord,
        event: UsageEvent,
        identity: bytes,
        verdict_class: str,
        content: int | None = None,
    ) -> None:
        """The first verdict on an identity: remembered, counted, and in its minute's cell."""
        decided, offset, received_us = self.decided, record.offset, event.received_at_us
        mark = encode_mark(event.content, verdict_class, offset)
        self.known[identity] = mark
        decided.seen.append((identity, mark))
        if received_us - record.timestamp_ms * 1000 > AHEAD_MAX_US:
            # One far ahead would become the floor some day, and all after it look forgotten.
            decided.pinned.append((identity, mark))
        elif received_us > decided.received_max_us:
            decided.received_max_us = received_us
        cell = (event.source, received_us - received_us % MINUTE_US, verdict_class)
        tally = self.cells.get(cell)
        if tally is None:
            tally = self.cells[cell] = Tally(offset)
        tally.add(offset, 0, int.from_bytes(event.content, "big") if content is None else content)
