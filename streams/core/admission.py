"""Admission: a chunk of records and what the partition remembers → everything that follows.

In: records of one partition in offset order, a look-up of ids already known, the readings as they
stand, the catalogue. Out: one `Decided` with the outputs to produce, the state to write and the
facts to tell. Nothing given is changed, so a chunk that is not settled leaves no trace in memory.
"""

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import Final, assert_never

import msgspec

from streams.core import output
from streams.core.catalogue import RULES, Catalogue
from streams.core.decided import AwaitFresh, Decided, Hold, Place, SourceRecord, conflict_id
from streams.core.envelope import decode
from streams.core.event import (
    Canary,
    Conflict,
    Correction,
    Decoded,
    Malformed,
    Unsupported,
    UsageEvent,
)
from streams.core.fact import CanaryFact, CorrectionFact, EventFact, ParkedFact, ParkedKind
from streams.core.instant import MINUTE_US
from streams.core.level import CellKey, Reading, fold
from streams.core.verdict import Accepted, AwaitCatalogue, Dead, Review, judge, judge_correction

_MARK: Final = Struct(">8scQ")
MARK_BYTES: Final = _MARK.size
"""What the state remembers of an id: half its content, class of its verdict, first offset."""


def earlier(left: bytes, right: bytes) -> bytes:
    """Of two marks of one id in one log, the one of the first copy."""
    return right if right[9:] < left[9:] else left


def decide(
    records: Sequence[SourceRecord], place: Place, catalogue: Catalogue, *, fresh: bool
) -> Decided:
    """Decides records in offset order until the end or the first that must wait.

    Args:
        records: in offset order, none of them settled before.
        place: the partition and what it remembers.
        catalogue: the rule book as read from the ledger.
        fresh: whether that reading is younger than the fetch of these records.
    """
    if catalogue.newest_rules() > RULES:
        reason = f"the catalogue asks for verdict rules {catalogue.newest_rules()}, this code has "
        hold = Hold(records[0].offset, f"{reason}{RULES}: upgrade the workers")
        return Decided(records[0].offset - 1, hold)
    admission = _Admission(place, catalogue, Decided(records[0].offset - 1), fresh=fresh)
    decoded = [
        _SUSPECT if record.offset == place.suspect else decode(record.key, record.value)
        for record in records
    ]
    admission.remember(decoded)
    for record, content in zip(records, decoded, strict=True):
        stop = admission.take(record, content)
        if stop is not None:
            admission.decided.stop = stop
            break
        admission.decided.last = record.offset
    return admission.decided


_SUSPECT: Final = Malformed("this record ended two workers; it was parked unread", "$")
_CODES: Final = {"accepted": b"a", "review": b"r", "dead": b"d", "correction": b"x"}


class _Admission:
    """Folds one chunk; lives for one call of `decide`."""

    def __init__(
        self, place: Place, catalogue: Catalogue, decided: Decided, *, fresh: bool
    ) -> None:
        self.place = place
        self.catalogue = catalogue
        self.fresh = fresh
        self.decided = decided
        self.known: dict[bytes, bytes] = {}

    def remember(self, decoded: Sequence[Decoded]) -> None:
        """Asks the state for all identities of the chunk at once."""
        ids: list[bytes] = []
        for content in decoded:
            match content:
                case UsageEvent():
                    ids.append(content.event_id)
                case Conflict():
                    ids.append(conflict_id(content.event))
                case Correction() | Canary():
                    ids.append(content.event.event_id)
                case Malformed() | Unsupported():
                    pass
                case _ as unreachable:
                    assert_never(unreachable)
        marks = self.place.lookup(ids)
        self.known = {i: mark for i, mark in zip(ids, marks, strict=True) if mark is not None}

    def take(self, record: SourceRecord, content: Decoded) -> Hold | AwaitFresh | None:
        """One record; a value when it and everything after it must wait."""
        if isinstance(content, Malformed):
            self._dead(record, None, Dead(content.reason, content.path))
            return None
        if isinstance(content, Unsupported):
            reason = (
                f"schema version {content.version} is unknown to this code: upgrade the workers"
            )
            return Hold(record.offset, reason)
        if not self.place.at_home(record.key or b""):
            reason = (
                f"the record at offset {record.offset} belongs on another partition; its producer "
                "does not use Kafka's murmur2, or the partition count was changed"
            )
            return Hold(record.offset, reason)
        match content:
            case UsageEvent():
                return self._usage(record, content)
            case Conflict():
                self._conflict(record, content.event, content.first_content)
            case Canary():
                self._canary(record, content)
            case Correction():
                return self._correction(record, content)
            case _ as unreachable:
                assert_never(unreachable)
        return None

    def _usage(self, record: SourceRecord, event: UsageEvent) -> AwaitFresh | None:
        mark = self.known.get(event.event_id)
        if mark is not None:
            if mark[:8] == event.content[:8]:
                self.decided.counts["duplicate"] += 1
            else:
                self._conflict(record, event, mark[:8].hex())
            return None
        verdict = judge(event, self.catalogue, self.place.floor_us, fresh=self.fresh)
        match verdict:
            case Accepted():
                self._accept(record, event, verdict)
            case Review():
                self._review(record, event, verdict)
            case Dead():
                self._dead(record, event, verdict)
            case AwaitCatalogue():
                return AwaitFresh(record.offset)
            case _ as unreachable:
                assert_never(unreachable)
        return None

    def _accept(self, record: SourceRecord, event: UsageEvent, verdict: Accepted) -> None:
        decided, offset, series = self.decided, record.offset, verdict.series
        value = record.value or b""
        decided.accepted.append(
            (record.key, output.accepted(verdict, self.place.partition, offset, value))
        )
        if verdict.meter.publish == "window":
            before = decided.readings.get(series) or self.place.readings.get(series)
            decided.readings[series] = fold(before, verdict.units, event.content, offset)
        else:
            content = int.from_bytes(event.content, "big")
            fact = EventFact(
                event.event_id, content, series, event.occurred_at_us, verdict.units, offset
            )
            decided.facts.append((offset, fact))
        self._mark(event, event.event_id, "accepted", offset)

    def _correction(self, record: SourceRecord, correction: Correction) -> AwaitFresh | None:
        event, offset = correction.event, record.offset
        if event.event_id in self.known:
            self.decided.counts["duplicate"] += 1
            return None
        verdict = judge_correction(
            event, self.catalogue, above_limit=correction.above_limit, fresh=self.fresh
        )
        match verdict:
            case Accepted():
                fact = CorrectionFact(
                    event.event_id,
                    int.from_bytes(event.content, "big"),
                    verdict.series,
                    event.occurred_at_us,
                    verdict.units,
                    correction.correction_key,
                    correction.target_event_id,
                    correction.reason,
                    correction.authorized_by,
                    offset,
                )
                self.decided.facts.append((offset, fact))
                rendered = output.accepted(
                    verdict, self.place.partition, offset, record.value or b""
                )
                self.decided.accepted.append((record.key, rendered))
                self._mark(event, event.event_id, "correction", offset)
            case Review():
                self._review(record, event, verdict)
            case Dead():
                self._dead(record, event, verdict)
            case AwaitCatalogue():
                return AwaitFresh(offset)
            case _ as unreachable:
                assert_never(unreachable)
        return None

    def _canary(self, record: SourceRecord, canary: Canary) -> None:
        event = canary.event
        if event.event_id in self.known:
            self.decided.counts["duplicate"] += 1
            return
        fact = CanaryFact(
            event.source, canary.partition, canary.token, event.received_at_us, record.offset
        )
        self.decided.facts.append((record.offset, fact))
        self._mark(event, event.event_id, "canary", record.offset)

    def _conflict(self, record: SourceRecord, event: UsageEvent, first_content: str) -> None:
        identity = conflict_id(event)
        if (self.known.get(identity) or self.place.lookup([identity])[0]) is not None:
            self.decided.counts["duplicate"] += 1
            return
        rule = f"another content of this identity came first (content {first_content})"
        verdict = judge(event, self.catalogue, self.place.floor_us, fresh=self.fresh)
        series, units = (
            (verdict.series, verdict.units)
            if isinstance(verdict, Accepted | Review)
            else (None, None)
        )
        conflict = Review("conflict", rule, series, units)
        self._park_review(record, event, conflict)
        self._mark(event, identity, "conflict", record.offset)

    def _review(self, record: SourceRecord, event: UsageEvent, verdict: Review) -> None:
        self._park_review(record, event, verdict)
        self._mark(event, event.event_id, "review", record.offset)

    def _park_review(self, record: SourceRecord, event: UsageEvent, verdict: Review) -> None:
        place, value = self.place, record.value or b""
        rendered = output.review(verdict, place.topic, place.partition, record.offset, value)
        self.decided.review.append((record.key, rendered))
        self.decided.facts.append((record.offset, _parked("review", record, event, verdict)))

    def _dead(self, record: SourceRecord, event: UsageEvent | None, verdict: Dead) -> None:
        place = self.place
        rendered = output.dead_letter(
            verdict, place.topic, place.partition, record.offset, record.key, record.value
        )
        self.decided.dead_letter.append((record.key, rendered))
        self.decided.facts.append((record.offset, _parked("dead", record, event, verdict)))
        if event is None:
            self.decided.counts["dead"] += 1
        else:
            self._mark(event, event.event_id, "dead", record.offset)

    def _mark(self, event: UsageEvent, identity: bytes, verdict_class: str, offset: int) -> None:
        """The first verdict on an identity: remembered, counted, and in its minute's cell."""
        decided = self.decided
        mark = _MARK.pack(event.content[:8], _CODES.get(verdict_class, b"c"), offset)
        self.known[identity] = mark
        decided.seen.append((identity, mark))
        received_us = event.received_at_us
        decided.received_max_us = max(decided.received_max_us, received_us)
        key = CellKey(event.source, received_us - received_us % MINUTE_US, verdict_class)
        before: Reading | None = decided.readings.get(key) or self.place.readings.get(key)
        decided.readings[key] = fold(before, 0, event.content, offset)
        decided.counts[verdict_class] += 1


def _parked(
    kind: ParkedKind, record: SourceRecord, event: UsageEvent | None, verdict: Review | Dead
) -> ParkedFact:
    amount = (verdict.series, verdict.units) if isinstance(verdict, Review) else (None, None)
    detail = (
        {"rule": verdict.rule}
        if isinstance(verdict, Review)
        else {
            "rule": verdict.reason,
            "path": verdict.path,
            "sha256": sha256(record.value or b"").hexdigest(),
        }
    )
    return ParkedFact(
        kind=kind,
        reason=verdict.reason if isinstance(verdict, Review) else "malformed",
        offset=record.offset,
        event_id=event.event_id if event else None,
        content=int.from_bytes(event.content, "big") if event else None,
        source=event.source if event else None,
        tenant_id=event.tenant_id if event else None,
        metric=event.metric if event else None,
        units=amount[1],
        series=amount[0],
        occurred_at_us=event.occurred_at_us if event else None,
        received_at_us=event.received_at_us if event else None,
        detail=msgspec.json.encode(detail).decode(),
        record=(record.value or b"")[: output.ORIGINAL_BYTES_MAX],
    )
