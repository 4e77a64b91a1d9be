"""Everything put together: what a seed becomes, from the first commit to the last settlement."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from streams import topics
from streams.settings import Settings
from tests.simulation.broker import Broker
from tests.simulation.connect import Connect
from tests.simulation.disk import Disk
from tests.simulation.growing import canary_tenants, tell_growth
from tests.simulation.ledger.database import Database
from tests.simulation.ledger.rows import Tables
from tests.simulation.meters import APPLIED_S_MAX, CHANGED, EVENT_NAMES, METERS
from tests.simulation.operator import Operator
from tests.simulation.service import Service
from tests.simulation.stripe import Stripe
from tests.simulation.timeline import Process, Timeline
from tests.simulation.worker import SETTINGS, Outside, Worker, unhurried

if TYPE_CHECKING:
    from tests.simulation.faults.auditing import Audits

PARTITIONS: Final = 3
HOUR_S: Final = 3_600.0
DRAIN_S_MAX: Final = 60 * HOUR_S
LOOK_S: Final = 600.0
LONG_S: Final = 16 * HOUR_S


@dataclass
class Machine:
    """A place where one worker runs after the other."""

    name: str
    disk: Disk
    worker: Worker | None = None
    lives: int = 0


class World:
    """One seed."""

    def __init__(self, seed: int, forced: Sequence[str] = (), *, keep: bool = False) -> None:
        """Args: the seed, faults that strike in any case, whether the notes are kept."""
        self.seed, self.rng = seed, Random(seed)
        self.timeline = timeline = Timeline()
        timeline.kept = [] if keep else None
        self.broker = Broker(timeline, PARTITIONS)
        self.service = Service(timeline)
        self.database = Database(timeline, METERS)
        self.stripe = Stripe(timeline, EVENT_NAMES, self.rng, self.delay_s)
        self.connect = Connect(timeline, self.service, self.broker, self.rng, self.delay_s)
        self.answers_lost = 0.0
        """Chance that the ledger's answer to a transaction is lost."""
        self.outside = Outside(
            timeline, self.broker, self.database, self.stripe, self.rng, self.delay_s,
            lambda: self.rng.random() < self.answers_lost, self._died, self._settings(),
        )  # fmt: skip
        self.machines: list[Machine] = []
        """At times one more than there are partitions."""
        for _ in range(self.rng.choice((1, 2, 2, 3, 4))):
            self.add_machine()
        self.processes: list[Process] = []
        self.canary_tenants = canary_tenants(PARTITIONS)
        self.audits: Audits | None = None
        self.forced = tuple(forced)
        self.operator = Operator(timeline, self.database, self.stripe, self.rng, self.service)
        self.mapped: list[tuple[str, int, str]] = []
        """tenant, from when on, customer: as told to the ledger."""
        self.ends: list[int] = []
        """Codes by which workers ended themselves."""
        self.writing: asyncio.Task[None] | None = None
        self.healed = False
        self.before_replay = (0, 0, 0)
        self.faults: list[str] = []
        self.traps: list[Callable[[Machine, str], None]] = []
        """Told of each named step that a worker reaches; may stop or kill it there."""

    def _settings(self) -> Settings:
        """Wide or narrow publishing: how many lanes, and how fast requests leave."""
        lanes, rate_per_s = self.rng.choice((1, 4, 8)), self.rng.choice((1, 50))
        return replace(SETTINGS, publish_lanes=lanes, publish_rate_per_s=rate_per_s)

    def delay_s(self) -> float:
        """One way of a message: milliseconds, now and then a second."""
        return self.rng.random() * (0.02 if self.rng.random() < 0.97 else 2.0)

    # -- workers -----------------------------------------------------------------------------------

    def add_machine(self) -> None:
        """One more, before any is started."""
        name = f"w{len(self.machines)}"
        self.machines.append(Machine(name, Disk(name)))

    def start(self, machine: Machine) -> None:
        """Starts a worker where none runs."""
        if machine.worker is None or not machine.worker.process.alive:
            machine.lives += 1
            machine.worker = Worker(self.outside, f"{machine.name}.{machine.lives}", machine.disk)
            self.processes.append(machine.worker.process)
            self.prepare(machine.worker)
            machine.worker.start()

    def prepare(self, worker: Worker) -> None:
        """Called for each worker before it starts; faults and mutants hang on here."""
        machine = next(m for m in self.machines if m.worker is worker)

        def reached(step: str) -> None:
            for trap in tuple(self.traps):
                trap(machine, step)

        worker.process.hook = reached

    def kill(self, machine: Machine, down_s: float, fault: str = "") -> None:
        """SIGKILL, and a start after a while; counted for a fault where there was one to kill."""
        if machine.worker is not None:
            if fault and machine.worker.process.alive:
                self.timeline.strike(fault)
            machine.worker.kill()
        self.timeline.outside(down_s, lambda: self.start(machine))

    def _died(self, worker: Worker) -> None:
        self.ends.append(worker.ended or 0)
        machine = next(m for m in self.machines if m.worker is worker)
        # Whoever starts it again waits longer each time, or one that cannot live fills the day.
        wait_s = 5.0 * 2 ** min(len(self.ends) - 1, 10)
        self.timeline.outside(wait_s, lambda: self.start(machine))

    def stop(self, machine: Machine, stopped_s: float, fault: str = "") -> None:
        """SIGSTOP, and SIGCONT after a while; counted as `kill` counts."""
        worker = machine.worker
        if worker is None or worker.process.state != "running":
            return
        if fault:
            self.timeline.strike(fault)
        worker.process.stop()
        self.timeline.note("stopped", worker.name)
        self.broker.group.watch(worker.process)
        self.timeline.outside(stopped_s, worker.process.go_on)

    # -- the run -----------------------------------------------------------------------------------

    def later(self, delay_s: float, what: Callable[[], object]) -> None:
        """Does something after a while, whoever lives then."""
        self.timeline.outside(delay_s, what)

    def run(self, story: "Callable[[World], float]") -> None:
        """Lives through a story, heals, drains.

        Args:
            story: arranges what will happen; says for how long.
        """
        try:
            lasts_s = story(self)
            applied_s = self.rng.random() * APPLIED_S_MAX
            self.later(applied_s, partial(self.database.append_meter, CHANGED))
            if lasts_s > LONG_S:
                settings = unhurried(self.outside.settings)
                self.outside = replace(self.outside, settings=settings)
            self.connect.start()
            self._on_duty()
            for machine in self.machines:
                self.start(machine)
            self.timeline.run_until_complete(asyncio.sleep(lasts_s))
            self.heal()
            self.timeline.run_until_complete(self._drain())
            self.before_replay = self.books()
            self.replay()
        finally:
            self.timeline.end([*self.processes, *self.connect.processes])

    def _on_duty(self) -> None:
        """People look now and then, and again and again once all is well."""
        if not self.healed:
            tell_growth(self)
            self.operator.look()
            self.later(self.rng.random() * 4 * HOUR_S, self._on_duty)

    def heal(self) -> None:
        """All is well from here on."""
        self.healed, self.operator.corrects = True, False
        self.operator.resume_all()
        self.timeline.note("healed")
        self.stripe.weather, self.stripe.sporadic, self.stripe.rejecting = "fine", 0.0, 0.0
        self.database.away = self.broker.away = False
        self.service.clock_ahead_us = self.database.clock_ahead_us = self.answers_lost = 0
        self.connect.stopped = False
        self.connect.start()
        for machine in self.machines:
            if machine.worker is not None:
                machine.worker.process.go_on()
            self.start(machine)

    async def _drain(self) -> None:
        began_s = self.timeline.now_s
        while self.timeline.now_s - began_s < DRAIN_S_MAX:
            await asyncio.sleep(LOOK_S)
            self.stripe.memory.engine.advance(self.timeline.now_us())
            tell_growth(self)
            self.operator.look()
            if not self.waiting_for():
                return
            if self.operator.waits_for_sums:
                await asyncio.sleep(2 * HOUR_S)

    def books(self) -> tuple[int, int, int]:
        """What a replay must not change: entries, parked items, what Stripe received."""
        tables = self.database.tables
        return len(tables.entries), len(tables.parked), len(self.stripe.received)

    def waiting_for(self) -> list[str]:
        """What is not at its end yet, in words."""
        tables = self.database.tables
        found = []
        if self.service.running or (self.writing is not None and not self.writing.done()):
            found.append("usage is still written")
        if not self.connect.caught_up:
            found.append("connect has not sent every row")
        for partition, log in enumerate(self.broker.logs[topics.EVENTS]):
            told = {k[1]: position for k, position in tables.positions.items()}
            if log and told.get(partition, -1) < len(log) - 1:
                found.append(f"partition {partition} is not told to its end")
        found += [f"level {lv.key} is to be cut" for lv in tables.levels.values() if lv.due_us]
        found += [f"entry {u.entry_id} is not covered" for u in tables.uncovered.values()]
        found += [
            f"meter event {m.meter_event_id} is {m.state}"
            for m in tables.meter_events
            if m.state in {"pending", "ambiguous", "dead"}
        ]
        if self.stripe.memory.state.unreported:
            found.append("Stripe has not told of everything that it refused")
        untold = self.stripe.memory.state.reports.keys() - set(tables.reports)
        found += [f"report {event_id} is not noted" for event_id in sorted(untold)]
        found += [f"proposal {p.number} is open" for p in self.database.open_proposals()]
        found += [f"halted: {kind}" for kind in tables.halts]
        found += [f"{d.reason}: {d.customer} {d.start_us}" for d in tables.doubts if d.open]
        return found

    def replay(self) -> None:
        """All local state is lost, and told to nobody: whatever is read again changes nothing."""
        for machine in self.machines:
            if machine.worker is not None:
                machine.worker.kill()
            machine.disk.lose()
            self.start(machine)
        self.timeline.run_until_complete(asyncio.sleep(LOOK_S))

    # -- people ------------------------------------------------------------------------------------

    def restore(self, backup: Tables) -> None:
        """An older ledger takes the place of this one; what people know they say again."""
        self.database.restore(backup)
        for tenant_id, from_us, customer in self.mapped:
            if (from_us, customer) not in self.database.tables.customers.get(tenant_id, []):
                self.database.map_customer(tenant_id, customer, from_us)
        self.operator.finance.say_corrections()
        self.operator.say_pauses()

    def canaries(self, every_s: float, until_s: float) -> None:
        """Rows that prove each partition to be alive, again and again."""
        self.service.emit_canaries(self.canary_tenants)
        if self.timeline.now_s < until_s:
            self.later(every_s, partial(self.canaries, every_s, until_s))

    def map_customer(self, tenant_id: str, customer: str, from_us: int) -> None:
        """Says who pays for a tenant."""
        self.mapped.append((tenant_id, from_us, customer))
        self.database.map_customer(tenant_id, customer, from_us)
