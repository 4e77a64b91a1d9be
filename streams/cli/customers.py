"""`tailrace customers map|list`: which Stripe customer pays for a tenant, and from when on."""

import re
import shlex
from dataclasses import replace
from typing import Annotated, Any

import typer

from streams.cli import cycles, terminal
from streams.cli.database import Connection, connected, ledger_rows, login_of
from streams.cli.document import instant_text
from streams.cli.errors import UsageProblemError
from streams.cli.mappings import Mapped, mappings_of, other_payers, warn_of_other_cycles
from streams.cli.options import (
    Dir,
    Json,
    Reason,
    Yes,
    duration_option,
    instant_option,
    kept_reason,
    new_app,
)
from streams.cli.stack import resolve
from streams.cli.stripe_cycle import cycle_at_stripe
from streams.core.billing import BillingCycle, Payer
from streams.core.envelope import control_rule
from streams.core.instant import SECOND_US, wire_text
from streams.core.interval import BillingInterval, read_interval
from streams.settings import Settings

app = new_app("Which Stripe customer pays for a tenant's usage.")


@app.command("map")
def map_customer(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    tenant: Annotated[str, typer.Argument(metavar="TENANT", show_default=False)],
    customer: Annotated[str, typer.Argument(metavar="CUSTOMER", show_default=False)],
    directory: Dir = None,
    from_text: Annotated[
        str | None,
        typer.Option("--from", metavar="TS", help="Windows from here on; default: see above."),
    ] = None,
    anchor: Annotated[
        str | None, typer.Option(metavar="TS", help="Start of any of the billing periods.")
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Length of the billing period: day, week, month, year, or as in '3 months'.",
        ),
    ] = None,
    grace: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Stripe's finalisation grace, 1h.")
    ] = None,
    reason: Reason = None,
    yes: Yes = False,
) -> None:
    """Maps a tenant to a Stripe customer; what was held for it is sent at once.

    A tenant's first mapping counts from the beginning and needs no --yes. A later one takes effect
    at the next window boundary, and needs --yes and --reason. With an anchor and an interval the
    billing deadline of each window is known, and nothing is sent past it. They are read from the
    customer's subscription where the key may and nothing is given; the grace is never told by
    Stripe. Meters that could not make the customer's invoices are named, and nothing is changed.
    """
    stack = resolve(directory)
    settings = stack.need("ledger_dsn")
    _refuse_impossible(tenant, customer)
    if (anchor is None) != (interval is None):
        raise UsageProblemError(
            "--anchor and --interval: one says nothing without the other",
            fix="give both, as in `--anchor 2026-11-01T00:00:00Z --interval month`",
        )
    wanted = {
        "tenant_id": tenant,
        "customer": customer,
        "effective_from_us": instant_option("--from", from_text),
        "anchor_us": instant_option("--anchor", anchor),
        "billing_interval": None if interval is None else _length(interval),
        "grace_us": duration_option("--grace", grace),
    }
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        known = [line for line in mappings_of(ledger) if line.tenant_id == tenant]
        # A cycle that is known by now was not when it was mapped.
        lacks = bool(known) and known[-1].anchor_us is None and bool(other_payers(ledger, wanted))
        if known and _same(known, wanted) and not lacks:
            since = wire_text(known[-1].effective_from_us)
            terminal.data(f"unchanged: {tenant} is mapped to {customer} since {since}")
            return
        wanted |= {"actor": login_of(ledger), "reason": reason}
        wanted |= _cycle(ledger, settings, wanted)
        warn_of_other_cycles(ledger, wanted)
        if known:
            terminal.say(
                f"plan: {tenant} moves from {known[-1].customer} to {customer}, from "
                f"{from_text or 'the next window boundary'} on; earlier usage stays where it is"
            )
            command = f"tailrace customers map {shlex.quote(tenant)} {shlex.quote(customer)}"
            why = kept_reason(reason, command)
            full = f"{command} --reason {shlex.quote(why)}"
            terminal.confirm("An existing mapping would change.", yes=yes, command=full)
        waiting = dict(ledger_rows(ledger, "unmapped")).get(tenant, 0)
        starts_us = int(ledger_rows(ledger, "map_customer", wanted)[0][0])
    released = f"; {waiting} entries that waited for it can be sent" if waiting else ""
    terminal.data(f"{tenant} → {customer} from {_from(starts_us)} on{released}")


def _length(interval: str) -> BillingInterval:
    """The billing interval that a person typed."""
    known = read_interval(interval)
    if known is None:
        raise UsageProblemError(
            f"--interval: {interval!r} is no billing period of Stripe's, which last three years at "
            "the most",
            fix="day, week, month, year, or a number of them: `--interval '3 months'` for quarters",
        )
    return known


def _cycle(ledger: Connection, settings: Settings, wanted: dict[str, Any]) -> dict[str, Any]:
    """The billing cycle to record: given, else read from Stripe, else none; checked."""
    grace_us = wanted["grace_us"]
    now_us = int(ledger_rows(ledger, "now_us")[0][0])
    if wanted["anchor_us"] is None:
        cycle = cycle_at_stripe(settings, wanted["customer"], now_us)
    else:
        cycle = BillingCycle(wanted["anchor_us"], wanted["billing_interval"])
    told_by_stripe = cycle is not None
    if cycle is None and (other := other_payers(ledger, wanted)):
        same = other[-1]
        cycle = BillingCycle(same.anchor_us or 0, same.billing_interval or "")
        grace_us = same.grace_us if grace_us is None else grace_us
        wanted["grace_us"] = grace_us
        terminal.say(f"billing cycle of {same.customer} as {same.tenant_id} is mapped to it")
    if cycle is None:
        if grace_us is not None:
            raise UsageProblemError(
                "--grace: says nothing without a billing cycle, and Stripe told none",
                fix="give it, as in `--anchor 2026-11-01T00:00:00Z --interval month`",
            )
        terminal.say("no billing deadline is known for it: `--anchor … --interval …` gives one")
        return {}
    margin_us, default_us = cycles.margin_and_grace_us(ledger)
    cycle = replace(cycle, grace_us=default_us if grace_us is None else grace_us)
    cycles.refuse_impossible(cycle)
    payer = Payer(wanted["tenant_id"], wanted["customer"], cycle.grace_us, margin_us)
    cycles.refuse_unpunctual(ledger, payer)
    if wanted["anchor_us"] is None and told_by_stripe:
        terminal.say(
            f"billing cycle read from Stripe: {cycle.interval} from {wire_text(cycle.anchor_us)}"
        )
    return {"anchor_us": cycle.anchor_us, "billing_interval": cycle.interval}


_CUSTOMER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")


def _refuse_impossible(tenant: str, customer: str) -> None:
    """A typing error here would bill somebody else, or nobody."""
    length_fits = 1 <= len(tenant.encode()) <= 200
    if not length_fits or tenant != tenant.strip() or "#" in tenant or control_rule(tenant):
        raise UsageProblemError(
            f"TENANT: {tenant!r} is no tenant that usage can be recorded for: 1 to 200 bytes, no "
            "white space at its ends, no control characters, no '#'",
            fix="write it as the service does in record_usage",
        )
    if _CUSTOMER.fullmatch(customer) is None:
        raise UsageProblemError(
            f"CUSTOMER: {customer!r} is no Stripe customer id: letters, digits, _ . -",
            fix="copy the id from Stripe's dashboard, as in cus_NffrFeUfNV2Hib",
        )


@app.command("list")
def list_customers(directory: Dir = None, as_json: Json = False) -> None:
    """All mappings with their billing cycles, and the tenants whose usage waits for a customer.

    A window that two billing periods share has one date, in the later period. Where meters have
    such windows, they are named with the bound: how much of a period's last usage is billed by the
    period after it, at the most.
    """
    settings = resolve(directory).need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        mappings = mappings_of(ledger)
        unmapped = dict(ledger_rows(ledger, "unmapped"))
        documents = _documents(ledger, mappings)
    if as_json:
        terminal.emit_json(
            {
                "mappings": documents,
                "unmapped": [
                    {"tenant_id": tenant, "entries": entries}
                    for tenant, entries in unmapped.items()
                ],
            }
        )
        return
    heads = ("tenant", "customer", "from", "anchor", "interval", "grace s", "deadline", "by")
    listed = [
        (
            line.tenant_id,
            line.customer,
            _from(line.effective_from_us),
            instant_text(line.anchor_us),
            line.billing_interval or "",
            document["grace_s"],
            document["deadline"],
            line.actor,
        )
        for line, document in zip(mappings, documents, strict=True)
    ]
    terminal.show_table(heads, listed)
    for document in documents:
        for shared in document["straddling"]:
            terminal.data(
                f"{document['tenant_id']}: {shared['metric']} windows of {shared['window_s']} s "
                f"hold up to {shared['bound_s']} s of usage before a period's end; the next "
                "period's invoice has it"
            )
    for tenant, entries in unmapped.items():
        command = f"tailrace customers map {shlex.quote(tenant)} cus_…"
        terminal.say(f"{tenant}: {entries} entries held; `{command}`")


def _same(known: list[Mapped], wanted: dict[str, Any]) -> bool:
    newest = known[-1]
    asked_us = wanted["effective_from_us"]
    billing = (wanted["anchor_us"], wanted["billing_interval"], wanted["grace_us"])
    return (
        newest.customer == wanted["customer"]
        and (asked_us is None or asked_us == newest.effective_from_us)
        and billing in (newest[3:6], (None, None, None))
    )


def _documents(ledger: Connection, mappings: list[Mapped]) -> list[dict[str, Any]]:
    catalogue = cycles.read_catalogue(ledger)
    margin_us, default_us = cycles.margin_and_grace_us(ledger)
    meters = catalogue.from_now_on()
    found = []
    for line in mappings:
        cycle = None
        if line.anchor_us is not None:
            grace_us = default_us if line.grace_us is None else line.grace_us
            cycle = BillingCycle(line.anchor_us, line.billing_interval or "", grace_us)
        periods = cycles.cycle_document(cycle, meters, catalogue.read_at_us, margin_us)
        found.append(_document(line) | periods)
    return found


def _document(line: Mapped) -> dict[str, Any]:
    return {
        "tenant_id": line.tenant_id,
        "customer": line.customer,
        "effective_from": wire_text(line.effective_from_us),
        "anchor": instant_text(line.anchor_us),
        "interval": line.billing_interval,
        "grace_s": None if line.grace_us is None else line.grace_us // SECOND_US,
        "actor": line.actor,
    }


def _from(instant_us: int) -> str:
    return "the beginning" if instant_us == 0 else wire_text(instant_us)


APPS = {"customers": app}
