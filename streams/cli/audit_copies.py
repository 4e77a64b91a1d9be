"""Skipped records that were only copies → minutes judged without them, and whose copies they were.

In: the judgments of an audit and what people decided to skip. The identities of a minute are read
only where it has a verdict too many and something was skipped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from streams.cli.audit_skipped import SkippedRecord, read_skipped
from streams.cli.database import Connection, ledger_rows, rows
from streams.core.audit import (
    GROUP_OF_KIND,
    Judgment,
    Row,
    Tally,
    cell_readings,
    judge,
    registry_readings,
)
from streams.core.audit_names import Identity
from streams.core.instant import MINUTE_US, from_us
from streams.core.skipped import Said, without_skipped_copies


def identities_of(source: Connection, judgment: Judgment) -> list[Identity]:
    """All identities of a minute and group, as the registry has them."""
    bounds = {
        "from": from_us(judgment.minute_us),
        "to": from_us(judgment.minute_us + MINUTE_US),
    }
    return [
        Identity(r["event_id"], r["kind"], r["tenant_id"], r["event_key"], int(r["content"]))
        for r in rows(source, "registry_identities", bounds)
        if GROUP_OF_KIND.get(r["kind"]) == judgment.group
    ]


def without_copies(
    source: Connection, skipped: Iterable[SkippedRecord], judgments: Sequence[Judgment]
) -> tuple[list[Judgment], list[Identity]]:
    """The judgments with skipped copies left out, and the identity of each copy.

    What somebody named of a skipped record is a verdict too, and one too many once that row was
    sent again and read.
    """
    said = [Said(record.event_id) for record in skipped if record.state == "done"]
    judged: list[Judgment] = []
    copies: list[Identity] = []
    for judgment in judgments:
        if said and judgment.verdict == "phantom":
            found, own = without_skipped_copies(judgment, identities_of(source, judgment), said)
            judged.append(found)
            copies.extend(own)
        else:
            judged.append(judgment)
    return judged, copies


def told_as(copy: Identity, skipped: Iterable[SkippedRecord]) -> str:
    """The verdict class that a copy's skip is told in."""
    if all(record.named is None or record.event_id != str(copy.event_id) for record in skipped):
        return "dead"
    return "skipped conflict" if copy.kind == "conflict" else "skipped"


def sent_again(skipped: Iterable[SkippedRecord], copies: Iterable[Identity]) -> list[SkippedRecord]:
    """The decisions, with what came of those whose record somebody named."""
    ids = {str(copy.event_id) for copy in copies}
    return [
        replace(record, sent_again=record.named is not None and record.event_id in ids)
        for record in skipped
    ]


def copied(
    source: Connection, ledger: Connection, name: str, received_at_us: int
) -> frozenset[str]:
    """Ids of the identities of an instant's minute of which a copy was skipped, and no more."""
    start_us = received_at_us - received_at_us % MINUTE_US
    of_source = {"from": from_us(start_us), "to": from_us(start_us + MINUTE_US)}
    of_ledger = {"source": name, "from_us": start_us, "to_us": start_us + MINUTE_US}
    registry = registry_readings(
        Row(r["minute_us"], r["kind"], Tally(r["count"], int(r["digest"])))
        for r in rows(source, "registry_minutes", of_source)
    )
    cells = cell_readings(
        Row(minute_us, kind, Tally(count, int(digest)))
        for minute_us, kind, count, digest in ledger_rows(ledger, "cells", of_ledger)
    )
    _, copies = without_copies(source, read_skipped(ledger), judge(registry, cells, registry))
    return frozenset(str(identity.event_id) for identity in copies)
