"""`tailrace held name`: which recorded usage a skipped record was, where it does not say so itself.

A person's word, and checked: an audit's look must find exactly that identity without any verdict.
"""

import time
from uuid import uuid4

import msgspec

from streams.adapters.clock import SystemClock
from streams.cli import terminal
from streams.cli.audit_registry import Waiting, look_at
from streams.cli.audit_skipped import SkippedRecord, read_skipped
from streams.cli.audit_span import Span
from streams.cli.database import Connection, ledger_rows, login_of, row
from streams.cli.errors import TryAgainError, UsageProblemError
from streams.cli.held import Held
from streams.core.instant import wire_text
from streams.core.skipped import Missing, Said, meant

WAIT_S = 60.0
SHOWN = 20


def name_record(
    source: Connection,
    ledger: Connection,
    record: SkippedRecord,
    said: Said,
    held: list[Held],
) -> tuple[str, Missing]:
    """The identity that the record was, by what it and the person say; with its source.

    Raises:
        UsageProblemError: what has no verdict is not that, or more than one of it.
        TryAgainError: canaries did not arrive in time; nothing can be judged.
        psycopg.Error: one of the databases refused or went away.
    """
    progress = terminal.Progress()
    waiting = Waiting(time.sleep, SystemClock().elapsed_s, WAIT_S, progress.show)
    name = str(row(source, "source_name")["source"])
    look = look_at(source, ledger, Span(name), uuid4(), waiting, held)
    progress.clear()
    missing = list(look.missing(source))
    # What the record says of itself binds the person, too.
    found = meant(meant(missing, record.said), said)
    if len(found) == 1:
        return name, found[0]
    listed = ", ".join(
        f"{each.identity.tenant_id}/{each.identity.event_key}" for each in missing[:SHOWN]
    )
    raise UsageProblemError(
        f"{len(found)} recorded identities without a verdict are meant; without one: "
        f"{listed or 'none that can be singled out'}",
        fix="name it with --tenant and --event-key, as `tailrace audit` lists it",
    )


def skipped_record(ledger: Connection, partition: int, offset: int) -> SkippedRecord:
    """The last record that was skipped at this place.

    Raises:
        UsageProblemError: none was, or the skip was its verdict.
        TryAgainError: the worker has yet to go on.
    """
    places = [r for r in read_skipped(ledger) if (r.partition, r.offset) == (partition, offset)]
    if not places:
        raise UsageProblemError(
            f"nothing was skipped at offset {offset} of partition {partition}",
            fix="see what was with `tailrace held list`",
        )
    record = places[-1]
    place = f"offset {offset} of partition {partition}"
    if record.state == "skipped":
        raise TryAgainError(
            f"{place} was skipped, and its worker has not gone on yet",
            fix="repeat the command in a moment, or see `tailrace held list`",
        )
    if record.judged or record.state != "done":
        why = "the skip is its verdict" if record.judged else f"the skip is {record.state}"
        raise UsageProblemError(
            f"{place} needs no name: {why}", fix="see `tailrace audit` for what is missing"
        )
    return record


def note_name(
    ledger: Connection, record: SkippedRecord, source: str, missing: Missing, why: str
) -> str:
    """Writes it down; the receipt as a line.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    identity = missing.identity
    named = {
        "receipt": record.receipt,
        "source": source,
        "minute_us": missing.minute_us,
        "kind": identity.kind,
        "event_id": identity.event_id,
        "tenant_id": identity.tenant_id,
        "event_key": identity.event_key,
        "content": str(identity.content),
    }
    order = {
        "named": msgspec.json.encode(named).decode(),
        "reason": why,
        "actor": login_of(ledger),
    }
    changed, receipt, by_whom, since_us, because = ledger_rows(ledger, "name_skipped", order)[0]
    verb = "named" if changed else "unchanged: named already,"
    return (
        f"{verb} offset {record.offset} of partition {record.partition} was "
        f"{identity.tenant_id}/{identity.event_key}, by {by_whom} at {wire_text(since_us)}: "
        f"{because} (receipt {receipt})"
    )
