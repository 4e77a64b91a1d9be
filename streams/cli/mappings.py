"""Which customer pays for which tenant, and whether tenants of one customer agree on its cycle."""

import shlex
from typing import Any, NamedTuple

from streams.cli import cycles, terminal
from streams.cli.database import Connection, ledger_rows
from streams.cli.document import instant_text


class Mapped(NamedTuple):
    """A mapping as the ledger lists it; instants in microseconds."""

    tenant_id: str
    customer: str
    effective_from_us: int
    anchor_us: int | None
    billing_interval: str | None
    grace_us: int | None
    actor: str


def mappings_of(ledger: Connection) -> list[Mapped]:
    """All of them, by tenant and date."""
    return [Mapped(*line) for line in ledger_rows(ledger, "customers")]


def other_payers(ledger: Connection, wanted: dict[str, Any]) -> list[Mapped]:
    """Other tenants that the same customer pays for now, with their billing cycle."""
    return [line for line in _beside(ledger, wanted) if line.anchor_us is not None]


def warn_of_other_cycles(ledger: Connection, wanted: dict[str, Any]) -> None:
    """A customer has one billing cycle: of two that are recorded, one has wrong deadlines."""
    if wanted["anchor_us"] is None:
        return
    default_us = cycles.margin_and_grace_us(ledger)[1]

    def cycle(anchor_us: int, interval: str | None, grace_us: int | None) -> tuple[object, ...]:
        return anchor_us, interval, default_us if grace_us is None else grace_us

    mine = cycle(wanted["anchor_us"], wanted["billing_interval"], wanted["grace_us"])
    for line in _beside(ledger, wanted):
        typed = f"tailrace customers map {shlex.quote(line.tenant_id)} {line.customer}"
        if line.anchor_us is None:
            terminal.say(
                f"{line.tenant_id} has no billing cycle for {line.customer}, so nothing of it has "
                f'a deadline: `{typed} --reason "…" --yes` gives it this one'
            )
        elif cycle(line.anchor_us, line.billing_interval, line.grace_us) != mine:
            terminal.say(
                f"{line.tenant_id} has another billing cycle for {line.customer}: "
                f"{line.billing_interval} from {instant_text(line.anchor_us)}; one of the two has "
                f"wrong deadlines: map it anew with `{typed} --anchor … --interval …`"
            )


def _beside(ledger: Connection, wanted: dict[str, Any]) -> list[Mapped]:
    newest = {line.tenant_id: line for line in mappings_of(ledger)}
    newest.pop(wanted["tenant_id"], None)
    same = [line for line in newest.values() if line.customer == wanted["customer"]]
    return sorted(same, key=lambda line: line.effective_from_us)
