"""The invariants, checked from outside once a world is drained."""

import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple
from typing import Final

import msgspec

from streams import topics
from tests.simulation.completeness import audited
from tests.simulation.decisions import four_eyes, unpaused
from tests.simulation.invoicing import carried, unbilled
from tests.simulation.oracle import (
    Cell,
    Truth,
    Violation,
    amounts_differ,
    billed,
    cells_differ,
    parked_differs,
)
from tests.simulation.rules import HOUR_US
from tests.simulation.world import World

FENCE_US: Final = 23 * HOUR_US + HOUR_US // 2
LEASE_US: Final = 60_000_000
SETTLE_DEADLINE: Final = 70
AGENT_FAILED: Final = 72
"""How a worker ends whose attempt the ledger has never heard of, after a restore."""
_ID: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def violations(world: World) -> list[Violation]:
    """Everything that is wrong with a world that has come to its end."""
    truth = Truth(world)
    found: list[Violation] = []
    for check in (amounts_differ, cells_differ, parked_differs, outputs_lack, unseen, homeless):
        found += check(world, truth)
    for look in (
        stuck,
        ledger_differs,
        settled_differs,
        unattempted,
        fenced,
        unleased,
        overtaken,
        unnoticed,
        alarmed,
        changed,
        given_up,
        unbilled,
        carried,
        four_eyes,
        unpaused,
        audited,
        contradictions,
        replayed,
    ):
        found += look(world)
    found += [Violation("harness", repr(error)) for error in world.timeline.errors]
    return found


def stuck(world: World) -> Iterator[Violation]:
    """What is not at its end long after everything was healed."""
    for what in world.waiting_for():
        yield Violation("stuck", what)
    for machine in world.machines:
        if machine.worker is not None:
            for partition, reason in machine.worker.feeder.held.items():
                yield Violation("stuck", f"partition {partition} is held: {reason}")
    for code in world.ends:
        if code != SETTLE_DEADLINE and not (code == AGENT_FAILED and world.database.restores):
            yield Violation("ended", f"a worker ended itself with code {code}")


def ledger_differs(world: World) -> Iterator[Violation]:
    """Entries are what levels say."""
    tables = world.database.tables
    cut: defaultdict[object, int] = defaultdict(int)
    for entry in tables.entries:
        if entry.series is not None:
            cut[entry.series] += entry.delta
    for level in tables.levels.values():
        if cut[level.key] != level.total:
            yield Violation("ledger", f"{level.key}: level {level.total}, entries {cut[level.key]}")


def settled_differs(world: World) -> Iterator[Violation]:
    """Stripe has what is settled."""
    settled: defaultdict[Cell, int] = defaultdict(int)
    for m in world.database.tables.meter_events:
        if m.state == "recorded" and m.timestamp_s is not None:
            at_us = m.timestamp_s * 1_000_000
            settled[m.customer, m.event_name, at_us - at_us % HOUR_US] += m.units
    has = billed(world)
    for cell in sorted(settled.keys() | has.keys()):
        if settled[cell] != has.get(cell, 0):
            yield Violation(
                "settled", f"{cell}: settled {settled[cell]}, Stripe has {has.get(cell, 0)}"
            )


def unattempted(world: World) -> Iterator[Violation]:
    """A request without an attempt row that was there before it."""
    for one in world.stripe.received:
        attempted_us = world.database.attempted.get(one.key)
        if attempted_us is None or attempted_us > one.at_us:
            yield Violation("unattempted", f"{one.identifier} was sent without an attempt row")


def fenced(world: World) -> Iterator[Violation]:
    """A request that was sent again when Stripe may have forgotten that it has it."""
    recorded_us: dict[str, int] = {}
    for one in world.stripe.received:
        since_us = recorded_us.get(one.identifier)
        if since_us is not None and one.at_us - since_us > FENCE_US:
            yield Violation("stale_fence", f"{one.identifier} was sent past its fence")
        if one.recorded:
            recorded_us.setdefault(one.identifier, one.at_us)


def unleased(world: World) -> Iterator[Violation]:
    """A request by a publisher whose lane was no longer its own."""
    for restores, attempt_id, at_us in world.stripe.left:
        until_us = world.database.leases.get((restores, attempt_id))
        if until_us is not None and at_us > until_us:
            yield Violation("stale_lease", f"attempt {attempt_id} was sent after its lease")


def unnoticed(world: World) -> Iterator[Violation]:
    """A lane lent by a ledger that went back, before a person had looked."""
    database = world.database
    for (restores, attempt_id), until_us in database.leases.items():
        lent_us = until_us - LEASE_US
        restored_us = database.restored_us[restores - 1] if restores else 0
        looked = not restores or any(restored_us <= at <= lent_us for at in database.adopted_us)
        if not looked:
            yield Violation("unnoticed", f"attempt {attempt_id} of a restored ledger")


def alarmed(world: World) -> Iterator[Violation]:
    """Publishing halted for a ledger that never went back."""
    if world.database.tables.went_back and not world.database.restores:
        yield Violation("false_alarm", "a worker remembers more than the ledger ever confirmed")


def changed(world: World) -> Iterator[Violation]:
    """An entry that is not any more what it was when it was made."""
    for entry in world.database.tables.entries:
        made = [
            seen
            for (_, number), seen in world.database.entries_seen.items()
            if number == entry.entry_id
        ]
        if astuple(entry) not in made:
            yield Violation("changed", f"entry {entry.entry_id} was changed")


def overtaken(world: World) -> Iterator[Violation]:
    """A negative amount at Stripe before what stood in front of it in its lane."""
    numbers = {m.identifier: m for m in world.database.tables.meter_events}
    newest: dict[int, int] = {}
    for one in world.stripe.received:
        m = numbers.get(one.identifier) if one.recorded else None
        if m is None or world.database.restores:
            continue
        if m.meter_event_id < newest.get(m.lane_id, 0):
            yield Violation("overtaken", f"{one.identifier} came after a negative amount")
        if m.units < 0:
            newest[m.lane_id] = max(newest.get(m.lane_id, 0), m.meter_event_id)


def given_up(world: World) -> Iterator[Violation]:
    """A meter event whose tries were used up by an outage for all."""
    if not world.stripe.was_sporadic:
        for reason in world.database.deaths:
            if reason == "exhausted":
                yield Violation("given_up", "a meter event was given up while Stripe was away")


def homeless(world: World, truth: Truth) -> Iterator[Violation]:
    """A key or an identity on two partitions, but where the topic grew in between."""
    homes: dict[bytes | str | None, int] = {}
    grew_at = world.broker.grew_at[0] if world.broker.grew_at else ()
    for partition, log in enumerate(world.broker.logs[topics.EVENTS]):
        moved = len(log) if partition >= len(grew_at) else grew_at[partition]
        for record in log[:moved] if partition < len(grew_at) else log:
            first = partition % len(grew_at) if grew_at else partition
            if homes.setdefault(record.key, first) != first:
                yield Violation("homeless", f"{record.key!r} is on two partitions")
    for partition, identities in enumerate(truth.identities):
        first = partition % len(grew_at) if grew_at else partition
        for identity in sorted(identities):
            if homes.setdefault(identity, first) != first:
                yield Violation("homeless", f"{identity} is on two partitions")


def contradictions(world: World) -> Iterator[Violation]:
    """Facts that contradict each other."""
    for kind, subject in world.database.tables.findings:
        yield Violation("finding", f"{kind}: {subject}")


def outputs_lack(world: World, truth: Truth) -> Iterator[Violation]:
    """A verdict that no reader of the topics would see."""
    topic_of = {"accepted": topics.ACCEPTED, "correction": topics.ACCEPTED}
    topic_of |= dict.fromkeys(("unknown", "uncountable"), topics.DEAD_LETTER)
    seen = {
        topic: {found for _, value in records for found in _ID.findall(_original(value))}
        for topic, records in world.broker.outputs.items()
    }
    for row, verdict in truth.verdicts:
        if verdict == "canary":
            continue  # for the ledger alone
        topic = topic_of.get(verdict, topics.REVIEW)
        if row.event_id.encode() not in seen.get(topic, ()):
            yield Violation("output_lost", f"{verdict} {row.event_id} is not in {topic}")


def unseen(world: World, truth: Truth) -> Iterator[Violation]:
    """Units that are missing at Stripe although no reading in the ledger is held for a person."""
    held = {
        truth.cell(tenant_id, metric, start_us)
        for (tenant_id, metric, start_us, *_), level in world.database.tables.levels.items()
        if level.held
    }
    has = billed(world)
    for cell, units in sorted(truth.amounts().items()):
        if has.get(cell, 0) < units and cell not in held:
            yield Violation("unseen", f"{cell}: {units - has.get(cell, 0)} units, and no finding")


def _original(value: bytes) -> bytes:
    """What a record is about; a dead letter carries it in base64."""
    encoded = msgspec.json.decode(value).get("original")
    return value if encoded is None else b64decode(encoded)


def replayed(world: World) -> Iterator[Violation]:
    """State that was read again from the logs changed an amount."""
    if world.books() != world.before_replay:
        yield Violation("replay", f"{world.before_replay} became {world.books()}")
