"""`tailrace erase`: what a tenant's service wrote in words goes, and the books still foot."""

import shlex
from typing import Annotated, Any

import typer

from streams.cli import terminal
from streams.cli.database import connected, row, rows
from streams.cli.deciding import again, need_reason
from streams.cli.document import instant_text
from streams.cli.erase_plan import Blocker, blockers_of, plan_of
from streams.cli.erase_read import STATEMENT_MS, Found, read_found, source_rows
from streams.cli.erasures import receipt_document, receipt_text
from streams.cli.errors import FINDING, TryAgainError, UsageProblemError
from streams.cli.options import Dir, Json, Reason, Yes
from streams.cli.stack import Stack, resolve

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def erase(
    tenant: Annotated[str, typer.Option(help="Whose.", show_default=False)],
    directory: Dir = None,
    reason: Reason = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erases what a tenant's service wrote in words; keys, digests and amounts stay.

    Shows where something of the tenant lies, store by store: what would be replaced, what is kept
    and why, what expires when, and what is not ours to erase. With --yes --reason it replaces
    attributes, trace ids, the records of decided review items and dead letters, and what the
    service said of its corrections, in the service's database and in the ledger, for good. Who does
    it is the login, which has the roles `ledger_eraser` and `metering_eraser`; the receipt stands
    in `tailrace ledger log`. Every sum stays, so audits, statements and replays say what they said.

    Exit 1 while something of the tenant is not settled or not proven: it says what to do first.
    Done twice it says so and changes nothing.
    """
    stack = resolve(directory)
    settings = stack.need("ledger_dsn", "source_dsn", "kafka_bootstrap")
    why = need_reason(reason, yes=yes)
    found = read_found(settings, tenant)
    if not found.known:
        raise UsageProblemError(
            f"--tenant: neither {found.source_name} nor the ledger knows {tenant!r}",
            fix="see the names with `tailrace windows list` and `tailrace customers list`",
        )
    blockers = blockers_of(found)
    before = found.erasures[-1] if found.erasures else None
    outcome, receipt = "planned", before
    if blockers:
        outcome = "refused"
    elif before is not None and not found.to_replace:
        outcome = "unchanged"
    elif yes:
        receipt, outcome = _carry_out(stack, found, why), "erased"
    if as_json:
        terminal.emit_json(_document(found, blockers, outcome, receipt))
    else:
        _show(found, blockers, outcome, receipt, reason)
    if blockers:
        raise typer.Exit(FINDING)


def _carry_out(stack: Stack, found: Found, why: str) -> dict[str, Any]:
    """Both databases, or none: neither is kept before the other has done its part.

    Should the machine die between the two ends, the receipt is there and the service's words are
    too: the same command then takes them under another receipt.
    """
    which = {"tenant": found.tenant}
    with (
        connected(stack.admin_dsn("ledger"), "the ledger", STATEMENT_MS) as ledger,
        connected(stack.admin_dsn("outbox"), "the service's database", STATEMENT_MS) as service,
        service.transaction(),
        ledger.transaction(),
    ):
        meant = source_rows(row(service, "source_erasable", which))
        act = {**which, "reason": why, "source_rows": meant}
        receipt = row(ledger, "erase_tenant", act)
        done = {name: receipt[name] for name in ("receipt", "erased_at")}
        replaced = int(row(service, "erase_source", {**which, **done})["rows"])
        if replaced != meant:
            raise TryAgainError(
                f"{found.source_name} recorded usage of {found.tenant} meanwhile; nothing was "
                "changed",
                fix="repeat the command",
            )
        return rows(ledger, "erasures", which)[-1]


def _document(
    found: Found, blockers: list[Blocker], outcome: str, receipt: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "tenant_id": found.tenant,
        "source": found.source_name,
        "outcome": outcome,
        "receipt": None if receipt is None else receipt_document(receipt),
        "earlier": [receipt_document(erasure) for erasure in found.erasures],
        "blockers": [blocker._asdict() for blocker in blockers],
        "plan": [line.document() for line in plan_of(found)],
    }


def _show(
    found: Found, blockers: list[Blocker], outcome: str, receipt: dict[str, Any] | None,
    reason: str | None,
) -> None:  # fmt: skip
    heads = ("store", "what", "rows", "bytes", "becomes", "gone by", "why")
    lines = [(*line[:5], instant_text(line.gone_by_us), line.why) for line in plan_of(found)]
    terminal.show_table(heads, lines)
    for erasure in found.erasures:
        terminal.data(receipt_text(erasure))
    for blocker in blockers:
        what = blocker.what.replace("_", " ")
        terminal.say(f"not yet: {blocker.number} {what}: {blocker.next}")
    match outcome:
        case "erased" if receipt is not None:
            terminal.data(receipt_text(receipt))
            terminal.say("what expires, what is kept and what is not ours stands above")
        case "unchanged" if receipt is not None:
            terminal.data(f"unchanged: {found.tenant} has no words left to erase")
        case "refused":
            terminal.say("nothing was changed")
        case _:
            words = ("tailrace", "erase", "--tenant", shlex.quote(found.tenant))
            terminal.say(f"nothing was changed; `{again(words, reason)}` does it, for good")


APPS = {"erase": app}
