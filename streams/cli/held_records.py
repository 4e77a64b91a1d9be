"""`tailrace held list` and `tailrace held skip`: records that hold a partition, and going on."""

from typing import Annotated, Any

import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, ledger_rows, login_of
from streams.cli.errors import FINDING
from streams.cli.held import tell_held
from streams.cli.options import Dir, Json, Reason, Yes, kept_reason, new_app
from streams.cli.stack import resolve
from streams.core.instant import SECOND_US, wire_text

app = new_app("Records that hold their partition: list them, skip one.")


@app.callback()
def held() -> None:
    """Records that hold their partition: list them, skip one."""


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
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, show_default=False)],
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
                full = f'{command} --reason "{why}"'
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


def read_held(ledger: Connection) -> list[dict[str, Any]]:
    """Records that hold a partition or were decided on, the oldest first."""
    documents = []
    for line in ledger_rows(ledger, "held_records"):
        log_id, partition, offset, fingerprint, reason, size, worker, since_us, seen_us = line[:9]
        skip_reason, actor, decided_us, receipt, parked, passed, now_us = line[9:]
        decision = None
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
            }
        )
    return documents


def state_of(*, decided: bool, parked: bool, passed: bool) -> str:
    """How far a record that held its partition has come.

    Args:
        decided: somebody decided to skip it.
        parked: it is a dead letter.
        passed: the ledger has facts from beyond it.
    """
    if not decided:
        return "held"
    if parked:
        return "done"
    return "contradicted" if passed else "skipped"


def _why(record: dict[str, Any]) -> str:
    decision = record["decision"]
    if decision is None:
        return str(record["reason"])
    return f"skipped by {decision['actor']}: {decision['reason']} (receipt {decision['receipt']})"


APPS = {"held": app}
