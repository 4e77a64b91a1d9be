"""Billing cycles as commands need them: checked, and laid over the meters in force."""

from collections.abc import Sequence
from typing import Any

from streams.cli.database import Connection, ledger_rows
from streams.cli.errors import ConfigurationError, UsageProblemError
from streams.core.billing import (
    BillingCycle,
    Payer,
    cycle_problem,
    deadline_us,
    period_of,
    straddle_us,
    unpunctual,
)
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.instant import SECOND_US, wire_text


def refuse_impossible(cycle: BillingCycle) -> None:
    """Raises `UsageProblemError` for a cycle that Stripe cannot have."""
    problem = cycle_problem(cycle)
    if problem is not None:
        raise UsageProblemError(
            f"--{problem}", fix="copy anchor and interval from the subscription in Stripe"
        )


def refuse_unpunctual(ledger: Connection, payer: Payer) -> None:
    """Refuses a grace that meters in force cannot make: by it no worker would start.

    Raises:
        ConfigurationError: naming every such meter.
        psycopg.Error: the ledger refused or went away.
    """
    found = unpunctual(read_catalogue(ledger).from_now_on(), [payer])
    if found:
        listed = "".join(f"\n  meter {one.metric}: {one.rule}" for one in found)
        raise ConfigurationError(
            f"nothing was changed, because usage could miss its invoices:{listed}",
            fix="raise the finalisation grace in Stripe (72 hours at the most) and give it with "
            "--grace, or lower skew_max or close_delay in meters.toml and apply it",
        )


def margin_and_grace_us(ledger: Connection) -> tuple[int, int]:
    """The ledger's margin, and its grace for customers whose mapping names none."""
    margin_us, grace_us = ledger_rows(ledger, "margin_us")[0]
    return int(margin_us), int(grace_us)


def read_payers(ledger: Connection) -> list[Payer]:
    """Customers whose billing cycle is known, now or later."""
    return [Payer(*line) for line in ledger_rows(ledger, "payers")]


def read_catalogue(ledger: Connection) -> Catalogue:
    """The rule book with the ledger's time."""
    versions = tuple(MeterVersion(*line) for line in ledger_rows(ledger, "meters"))
    return Catalogue(versions, int(ledger_rows(ledger, "now_us")[0][0]))


def cycle_document(
    cycle: BillingCycle | None, meters: Sequence[MeterVersion], now_us: int, margin_us: int
) -> dict[str, Any]:
    """The period a customer is in, its deadline, and the windows that two periods share."""
    if cycle is None:
        return {"period_end": None, "deadline": None, "straddling": []}
    shared = [(meter, straddle_us(cycle.anchor_us, meter)) for meter in meters]
    return {
        "period_end": wire_text(period_of(cycle.anchor_us, cycle.interval, now_us).end_us),
        "deadline": wire_text(deadline_us(cycle, now_us, margin_us)),
        "straddling": [
            {
                "metric": meter.metric,
                "window_s": meter.window_us // SECOND_US,
                "bound_s": bound_us // SECOND_US,
            }
            for meter, bound_us in shared
            if bound_us
        ],
    }
