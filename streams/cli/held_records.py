"""`tailrace held list|skip|name`: records that hold a partition, and going on without them."""

import shlex
from typing import Annotated, Any

import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, ledger_rows, login_of
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.held import held_partitions, tell_held
from streams.cli.held_name import name_record, note_name, skipped_record
from streams.cli.options import Dir, Json, Reason, Yes, kept_reason, new_app
from streams.cli.stack import resolve
from streams.core.instant import SECOND_US, wire_text
from streams.core.skipped import Said, state_of

app = new_app("Records that hold their partition: list them, skip one, name what it was.")

Partition = Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)]
Offset = Annotated[int, typer.Argument(metavar="OFFSET", min=0, show_default=False)]


@app.callback()
def held() -> None:
    """Records that hold their partition: list them, skip one, name what it was."""


@app.command("list")
def list_held(directory: Dir = None, as_json: Json = False) -> None:
    """Records that a partition waits at, and what was decided on them.

    States: `held`, waiting for newer code or a decision; `skipped`, decided, the worker has not
    said that it is done; `done`, parked as a dead letter; `contradicted`, decided, but a worker
    had read the record before it knew (exit 1).
    """
    stack = resolve(directory)
    with connected(stack.need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        records = read_held(ledger)
    if as_json:
        terminal.emit_json({"records": records})
    else:
        heads = ("partition", "offset", "state", "held since", "seen", "reason")
        listed = [
            (
                r["partition"], r["offset"], r["state"], r["held_since"], f"{r['seen_age_s']} s",
                _why(r),
            )
            for r in records
        ]  # fmt: skip
        terminal.show_table(heads, listed)
        tell_held(stack.facts)
    if any(record["state"] == "contradicted" for record in records):
        raise typer.Exit(FINDING)


@app.command("skip")
def skip(
    partition: Partition,
    offset: Offset,
    reason: Reason = None,
    directory: Dir = None,
    yes: Yes = False,
) -> None:
    """Dead-letters exactly the record that a partition is held at, and lets the rest go on.

    The decision stands in the ledger for ever, bound to the record's fingerprint: a replay, with
    newer code that could read it too, decides the same. Nothing else can be skipped.
    """
    command = f"tailrace held skip {partition} {offset}"
    why = kept_reason(reason, command)
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        for record in read_held(ledger):
            place = (record["partition"], record["offset"], record["state"])
            if place == (partition, offset, "held"):
                terminal.say(
                    f"plan: the record at offset {offset} of partition {partition} "
                    f"({record['bytes']} bytes, sha256 {record['fingerprint'][:16]}…) becomes a "
                    f"dead letter of kind malformed and is not billed; it waits because "
                    f"{record['reason']}"
                )
                full = f"{command} --reason {shlex.quote(why)}"
                terminal.confirm("This cannot be taken back.", yes=yes, command=full)
        order = {
            "partition": partition,
            "offset": offset,
            "reason": why,
            "actor": login_of(ledger),
        }
        changed, receipt, by_whom, since_us, because = ledger_rows(ledger, "skip_record", order)[0]
    verb = "skipped" if changed else "unchanged: skipped already,"
    terminal.data(
        f"{verb} offset {offset} of partition {partition} by {by_whom} at {wire_text(since_us)}: "
        f"{because} (receipt {receipt})"
    )
    if changed:
        terminal.say("its worker goes on with its next reading of the catalogue, within seconds")


@app.command("name")
def name(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    partition: Partition,
    offset: Offset,
    tenant: Annotated[str | None, typer.Option(help="Whose usage it was.")] = None,
    event_key: Annotated[str | None, typer.Option(help="Under which key it was recorded.")] = None,
    reason: Reason = None,
    directory: Dir = None,
    yes: Yes = False,
) -> None:
    """Says which recorded usage a skipped record was, where nobody could read it.

    Until then audits call that usage lost; from then on it is listed as skipped, its minute is
    sealed, and it is billed only if you correct the window. Taken is only what an audit's look
    finds without any verdict. Leave --tenant and --event-key out where the record says them itself.
    """
    command = f"tailrace held name {partition} {offset}"
    why = kept_reason(reason, command)
    said = Said(None, tenant, event_key)
    stack = resolve(directory)
    stack.need("source_dsn", "ledger_dsn")
    with (
        connected(stack.settings.source_dsn, "the service's database") as source,
        connected(stack.settings.ledger_dsn, "the ledger") as ledger,
    ):
        record = skipped_record(ledger, partition, offset)
        if (known := record.named) is not None:
            if {tenant, event_key} - {None, known.tenant_id, known.event_key}:
                raise UsageProblemError(
                    f"it was {known.tenant_id}/{known.event_key}, {known.actor} said already",
                    fix="see `tailrace held list`; what was named stays named",
                )
            terminal.data(f"unchanged: {record}")
            return
        of_source, missing = name_record(source, ledger, record, said, held_partitions(stack.facts))
        identity = missing.identity
        terminal.say(
            f"plan: the record at offset {offset} of partition {partition} was "
            f"{identity.tenant_id}/{identity.event_key} ({identity.kind}), received in the minute "
            f"{wire_text(missing.minute_us)}: not billed, and not lost any more"
        )
        terminal.confirm(
            "This cannot be taken back.", yes=yes, command=f"{command} --reason {shlex.quote(why)}"
        )
        terminal.data(note_name(ledger, record, of_source, missing, why))
    terminal.say(
        f"to bill it all the same: `tailrace correct --tenant {shlex.quote(identity.tenant_id)} "
        f"--event-key {shlex.quote(identity.event_key)} --delta … --key … --reason …`"
    )


def read_held(ledger: Connection) -> list[dict[str, Any]]:
    """Records that hold a partition or were decided on, the oldest first."""
    documents = []
    for line in ledger_rows(ledger, "held_records"):
        log_id, partition, offset, fingerprint, reason, size, worker, since_us, seen_us = line[:9]
        skip_reason, actor, decided_us, receipt, parked, passed, now_us = line[9:16]
        decision, (tenant_id, event_key, named_by, named_receipt) = None, line[16:]
        if receipt is not None:
            decision = {
                "reason": skip_reason,
                "actor": actor,
                "decided_at": wire_text(decided_us),
                "receipt": receipt,
            }
        documents.append(
            {
                "log_id": log_id,
                "partition": partition,
                "offset": offset,
                "state": state_of(decided=decision is not None, parked=parked, passed=passed),
                "fingerprint": fingerprint,
                "bytes": size,
                "reason": reason,
                "worker": worker,
                "held_since": wire_text(since_us),
                "seen_age_s": round((now_us - seen_us) / SECOND_US, 1),
                "decision": decision,
                "named": None
                if named_receipt is None
                else {
                    "tenant_id": tenant_id,
                    "event_key": event_key,
                    "actor": named_by,
                    "receipt": named_receipt,
                },
            }
        )
    return documents


def _why(record: dict[str, Any]) -> str:
    decision = record["decision"]
    if decision is None:
        return str(record["reason"])
    named = record["named"]
    was = "" if named is None else f"; it was {named['tenant_id']}/{named['event_key']}"
    return (
        f"skipped by {decision['actor']}: {decision['reason']} (receipt {decision['receipt']}){was}"
    )


APPS = {"held": app}
