"""Two publishers, people who take usage back, and the ledger's work list, in any order.

The claims are the adapter's, the judgement of answers the core's, the ledger's statements the
model's, and Stripe is the stand-in's engine. In between anybody may die, sleep past a lease, or
tell a reading that is old.
"""

from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, Literal

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from sandbox.stripe_sandbox import errors
from sandbox.stripe_sandbox.engine import Execution
from sandbox.stripe_sandbox.fact import Meter
from streams.core.lane import Claim
from streams.core.observation import MaybeSent, NotSent, Observation
from streams.core.settlement import PublishPolicy, Send, may_send, settle, settle_unsent
from tests.simulation.ledger.database import Database, Pool
from tests.simulation.meters import METERS
from tests.simulation.stripe import request_of
from tests.simulation.timeline import Process, Timeline
from tests.unit.stripe_sandbox.driver import Memory, observe

LEASE_S: Final = 60
MINUTE_S: Final = 60.0
METER: Final = METERS[0]
TENANTS: Final = ("acme", "blue")
WINDOWS: Final = (0, 1)
Fault = Literal["none", "not_sent", "lost", "error", "error_kept"]
FAULTS: Final = ("none", "none", "not_sent", "lost", "error", "error_kept")
HEALING_ROUNDS: Final = 60


class LanesMachine(RuleBasedStateMachine):
    """What is told and decided is what Stripe holds, whoever publishes it."""

    lent = Bundle("lent")
    fixes = Bundle("fixes")

    def __init__(self) -> None:
        super().__init__()
        self.timeline = Timeline()
        self.database = Database(self.timeline, METERS)
        self.database.limit_units = 1_000
        self.memory = Memory(now_us=self.timeline.now_us())
        self.memory.state.apply(Meter(f"mtr_{METER.event_name}", METER.event_name, "Calls", 0))
        self.publishers = [
            Pool(
                self.database, Process(self.timeline, name), lambda: 0.0, lambda: False
            ).publishing()
            for name in "ab"
        ]
        self.start_us = self.timeline.now_us() - 3 * METER.window_us
        self.readings: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.decided: Counter[str] = Counter()
        for tenant_id in TENANTS:
            self.database.map_customer(tenant_id, f"cus_{tenant_id}", 0)

    # -- what is told ------------------------------------------------------------------------------

    @rule(tenant=st.sampled_from(TENANTS), window=st.sampled_from(WINDOWS), units=st.integers(1, 9))
    def use(self, tenant: str, window: int, units: int) -> None:
        """A reading grows, and the ledger is told."""
        told = self.readings.setdefault((tenant, window), [])
        before: dict[str, Any] = told[-1] if told else {"count": 0, "total": "0"}
        start_us = self.start_us + window * METER.window_us
        told.append({
            "tenant_id": tenant, "metric": METER.metric, "version": 1, "shard": 0, "birth": 0,
            "start_us": start_us, "end_us": start_us + METER.window_us, "digest": "0",
            "count": before["count"] + 1, "total": str(int(before["total"]) + units),
        })  # fmt: skip
        self._tell(told[-1])

    @rule(pick=st.integers(0, 99))
    def tell_again(self, pick: int) -> None:
        """By somebody who does not know that others have told more."""
        told = [reading for readings in self.readings.values() for reading in readings]
        if told:
            self._tell(told[pick % len(told)])

    def _tell(self, reading: dict[str, Any]) -> None:
        rows = msgspec.json.encode([reading]).decode()
        self.database.apply_levels("log", 0, rows)
        assert self.database.find_levels("log", 0, rows) == 0

    @rule(
        target=fixes, tenant=st.sampled_from(TENANTS), window=st.sampled_from(WINDOWS),
        units=st.sampled_from((-9, -4, -1, 2)),
    )  # fmt: skip
    def take_back(self, tenant: str, window: int, units: int) -> Any:
        """A person's correction, signed."""
        fix = tenant, window, units, f"fix-{len(self.database.tables.entries)}"
        self.decided[tenant] += units
        self._correct(fix)
        return fix

    @rule(fix=fixes)
    def take_back_again(self, fix: tuple[str, int, int, str]) -> None:
        self._correct(fix)

    def _correct(self, fix: tuple[str, int, int, str]) -> None:
        tenant, window, units, key = fix
        at_us = self.start_us + window * METER.window_us + 1
        self.database.correct(tenant, METER.metric, at_us, units, key)

    # -- publishing --------------------------------------------------------------------------------

    @rule()
    def cut(self) -> None:
        self._do(self.publishers[0].cut_entries(99))

    @rule(target=lent, who=st.sampled_from((0, 1)))
    def claim(self, who: int) -> Any:
        claims = self._do(self.publishers[who].claim("ab"[who], 9, LEASE_S))
        return multiple(*((who, claim) for claim in claims))

    @rule(one=consumes(lent), fault=st.sampled_from(FAULTS))
    def send(self, one: tuple[int, Claim], fault: Fault) -> None:
        """Its request, its answer, and the settlement."""
        self._send(*one, fault)

    @rule(one=consumes(lent), fault=st.sampled_from(FAULTS))
    def die(self, one: tuple[int, Claim], fault: Fault) -> None:
        """With the answer on its way: nobody settles."""
        if self._may_leave(one[1]):
            self._request(one[1], fault)

    @rule(minutes=st.sampled_from((0.1, 2.0, 30.0)))
    def wait(self, minutes: float) -> None:
        self.timeline.now_s += minutes * MINUTE_S

    def _may_leave(self, claim: Claim) -> bool:
        return self.timeline.now_us() + 13_000_000 <= claim.lease_until_us

    def _send(self, who: int, claim: Claim, fault: Fault) -> None:
        policy, now_us = PublishPolicy(), self.timeline.now_us()
        permission = may_send(claim, policy, now_us)
        if not isinstance(permission, Send):
            settlement = settle_unsent(claim, permission, policy)
        else:
            seen = self._request(claim, fault) if self._may_leave(claim) else NotSent("too late")
            settlement = settle(claim, seen, policy, 0.5, sink_up=False)
        self._do(self.publishers[who].settle(settlement))

    def _request(self, claim: Claim, fault: Fault) -> Observation:
        if fault == "not_sent":
            return NotSent("refused")
        engine, now_us = self.memory.engine, self.timeline.now_us()
        begun = engine.begin(request_of(claim, claim.idempotency_key), now_us)
        if not isinstance(begun, Execution):
            reply = begun
        elif fault in {"error", "error_kept"}:
            failed = errors.server_error(500, stored=fault == "error_kept")
            reply = engine.fail(begun, failed, now_us, recorded=False)
        else:
            reply = engine.finish(begun, now_us, None)
        return MaybeSent("timeout") if fault == "lost" else observe(reply)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.timeline.run_until_complete(work)

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def entries_are_what_readings_say(self) -> None:
        tables = self.database.tables
        for level in tables.levels.values():
            newest = self.readings[level.key[0], (level.key[2] - self.start_us) // METER.window_us]
            assert (level.count, level.total) == (newest[-1]["count"], int(newest[-1]["total"]))
            cut = sum(e.delta for e in tables.entries if e.series == level.key)
            assert cut == (level.cut_total if level.due_us else level.total)

    @invariant()
    def each_entry_is_in_one_place(self) -> None:
        tables = self.database.tables
        places = Counter(tables.uncovered.keys())
        for m in tables.meter_events:
            if m.live:
                places.update(m.entry_ids)
                assert m.units == sum(self.database.entry(n).delta for n in m.entry_ids)
        assert places == Counter(entry.entry_id for entry in tables.entries)

    @invariant()
    def a_lane_has_one_request_under_way(self) -> None:
        now_us = self.timeline.now_us()
        lent = Counter(
            self.database.meter_event(a.meter_event_id).lane_id
            for a in self.database.tables.attempts
            if a.finished_us is None and a.lease_until_us > now_us
        )
        assert all(count == 1 for count in lent.values())

    @invariant()
    def nothing_is_left_behind_by_a_negative_amount(self) -> None:
        tables = self.database.tables
        for m in tables.meter_events:
            if m.units < 0 and m.state != "superseded":
                before = (o for o in tables.meter_events[: m.meter_event_id - 1] if o.open)
                assert all(other.lane_id != m.lane_id for other in before)

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        assert all(count == 1 for count in self.memory.counted().values())
        counted = self.memory.counted()
        for m in self.database.tables.meter_events:
            if m.state == "recorded" and m.identifier is not None:
                assert counted[m.identifier] == 1
            elif m.state == "superseded" and m.identifier is not None:
                assert counted[m.identifier] == 0

    def teardown(self) -> None:
        try:
            self._heal()
            for tenant_id in TENANTS:
                told = [r[-1]["total"] for (t, _), r in self.readings.items() if t == tenant_id]
                has = sum(
                    int(event.value)
                    for event in self.memory.state.recorded
                    if event.customer == f"cus_{tenant_id}"
                )
                assert has == sum(map(int, told)) + self.decided[tenant_id], tenant_id
        finally:
            self.timeline.close()

    def _heal(self) -> None:
        for _ in range(HEALING_ROUNDS):
            self.wait(30.0)
            self._do(self.publishers[0].cut_entries(99))
            for who in (0, 1):
                for claim in self._do(self.publishers[who].claim("ab"[who], 9, LEASE_S)):
                    self._send(who, claim, "none")
            tables = self.database.tables
            if not tables.uncovered and not any(m.open for m in tables.meter_events):
                return
        raise AssertionError("something is never settled")
