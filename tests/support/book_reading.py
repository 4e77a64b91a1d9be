"""What the books of a stack hold of some tenants, for the oracle: by SQL, and from the stand-in."""

from collections import Counter
from collections.abc import Iterable

import psycopg

from tests.support.live import LiveStack
from tests.support.oracle import Counted, Row, Seen


def ledger_number(stack: LiveStack, statement: str, *values: object) -> int:
    """The one number that a statement gives on the ledger, asked by its owner."""
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        row = ledger.execute(statement.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def findings(stack: LiveStack) -> list[tuple[int, str, str]]:
    """Open contradictions in the ledger that no test has accounted for.

    That a meter is wrong at Stripe contradicts nothing that is recorded.
    """
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        rows = ledger.execute(
            "SELECT finding_id, kind, subject FROM ledger.finding WHERE cleared_at IS NULL"
            " AND NOT starts_with(kind, 'meter_') ORDER BY finding_id"
        ).fetchall()
    return [row for row in rows if row[0] not in stack.expected_findings]


def read(stack: LiveStack, names: Iterable[str], *, redriven: int = 0) -> Seen:
    """What the books hold of some tenants, by SQL and from the stand-in's own memory.

    And of tenants and customers that nobody has recorded anything for: no other test would judge
    what has gone astray there.
    """
    recorded = _recorded_tenants(stack)
    tenants = sorted({*names, *(_billed_tenants(stack) - recorded)})
    with psycopg.connect(stack.facts["postgres_dsn"]) as service:
        keys = service.execute(
            "SELECT tenant_id, event_key FROM metering.usage_key WHERE tenant_id = ANY(%s)",
            (tenants,),
        ).fetchall()
        conflicts = service.execute(
            "SELECT tenant_id, count(*) FROM metering.usage_conflict WHERE tenant_id = ANY(%s)"
            " GROUP BY 1",
            (tenants,),
        ).fetchall()
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        rows = ledger.execute(
            "SELECT tenant_id, metric, extract(epoch FROM window_start)::bigint, events, total,"
            " decided, settled, abs(pending) + abs(held) + abs(dead) + abs(ambiguous)"
            " FROM ledger.balance WHERE tenant_id = ANY(%s)",
            (tenants,),
        ).fetchall()
        parked = ledger.execute(
            "SELECT tenant_id, reason, count(*) FROM ledger.parked WHERE tenant_id = ANY(%s)"
            " GROUP BY 1, 2",
            (tenants,),
        ).fetchall()
    others = {f"cus_{tenant}" for tenant in recorded.difference(tenants)}
    counted, refused = _stripe(stack, others)
    return Seen(
        keys=Counter((tenant, key) for tenant, key in keys),
        conflicts={tenant: int(number) for tenant, number in conflicts},
        windows={(r[0], r[1], int(r[2])): Row(*(int(value) for value in r[3:])) for r in rows},
        parked={(tenant, reason): int(number) for tenant, reason, number in parked},
        stripe=counted,
        doubted=tuple(e for e in refused if _doubted(stack, e)) if redriven else (),
        findings=tuple(f"{kind} {subject}" for _, kind, subject in findings(stack)),
    )


def _recorded_tenants(stack: LiveStack) -> set[str]:
    with psycopg.connect(stack.facts["postgres_dsn"]) as service:
        rows = service.execute("SELECT DISTINCT tenant_id FROM metering.usage_key").fetchall()
    return {tenant for (tenant,) in rows}


def _billed_tenants(stack: LiveStack) -> set[str]:
    """Tenants of which the ledger has an amount."""
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        rows = ledger.execute("SELECT DISTINCT tenant_id FROM ledger.meter_log").fetchall()
    return {tenant for (tenant,) in rows}


def _stripe(stack: LiveStack, others: set[str]) -> tuple[tuple[Counted, ...], tuple[Counted, ...]]:
    """The meter events that count, and those that were accepted and taken back.

    Args:
        stack: whose Stripe.
        others: customers of other tests, which these judge themselves.
    """
    found: dict[bool, list[Counted]] = {True: [], False: []}
    for event in stack.stand_in.oracle():
        if event["customer"] not in others and not event["cancelled"]:
            name, at_s = event["event_name"], int(event["timestamp"])
            units = int(event["value"])
            one = Counted(event["customer"], name, at_s, event["identifier"], units)
            found[not event["refused"]].append(one)
    return tuple(found[True]), tuple(found[False])


def _doubted(stack: LiveStack, event: Counted) -> bool:
    """Whether the ledger lists its cell as doubt, for no report has named it."""
    text = (
        "SELECT count(*) FROM ledger.doubt d JOIN ledger.meter_event m USING (customer, event_name,"
        " window_start, window_end) WHERE m.identifier = %s AND d.settled_at IS NULL AND NOT EXISTS"
        " (SELECT FROM ledger.rejection r WHERE r.identifier = m.identifier)"
    )
    return ledger_number(stack, text, event.identifier) > 0
