"""The group consumer on its own thread → chunks for the agent, until drained.

`start` joins the group; `put` is called on the loop with each chunk. `drain` lets the chunk in hand
finish, commits, closes the tables and leaves the group. Everything else here may be called from any
thread and takes effect before the next fetch.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaException, Message
from rocksdict import Cache

from streams.crash_points import CrashAt, never
from streams.engine import clients, generations
from streams.engine.absorb import MergeRules
from streams.engine.before import Told, nothing_before
from streams.engine.broker_errors import BrokerErrors
from streams.engine.continuity import Continuity
from streams.engine.data_dir import DataDirectory
from streams.engine.errors import ConsumerFatal
from streams.engine.fail_stop import ExitCode, FailStop
from streams.engine.figures import Figures, figures_of
from streams.engine.group import Group
from streams.engine.group_offsets import Note, Notes
from streams.engine.hand_over import GivenUp, HandOver, Put, nobody_asks
from streams.engine.kafka_faults import error_of, is_final, text_of
from streams.engine.layout import LayoutOf, ungrown
from streams.engine.log import LogId
from streams.engine.log_guard import Seconds, TopicInquiry
from streams.engine.log_reader import Cancelled
from streams.engine.outcome import Outcomes
from streams.engine.recovery import recover
from streams.engine.recovery_needs import Recovery
from streams.engine.settings import EngineSettings
from streams.engine.table import PartitionTable

_COMMIT_EVERY_S: Final = 1.0
_TRY_EVERY_S: Final = 5.0
_PATIENCE_S: Final = 15.0
_IDLE_S: Final = 0.1
"""How long a request, a finished recovery or the end may wait while no record comes."""
log = structlog.get_logger("engine")


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the engine is given by those who know what usage is."""

    rules: MergeRules
    """How two values of one key become one, at recovery."""
    acknowledged: Callable[[LogId], int]
    """What the ledger has of a log (`Recovery.acknowledged`)."""
    clock: Seconds
    """Seconds, counting while the machine is suspended (CLOCK_BOOTTIME)."""
    wall: Callable[[], str]
    """The wall clock as people read it, for messages alone."""
    fail_stop: FailStop
    """Ends the process."""
    note: Note
    """What the service wants remembered beside the offsets."""
    crash_at: CrashAt = never
    """Hook of the drills."""
    layout: LayoutOf = ungrown
    """How the topic came to its partitions (`Recovery.layout`)."""
    before: Callable[[LogId], Told | None] = nothing_before
    """Earlier logs that a log continues (`Recovery.before`)."""
    given_up: GivenUp = nobody_asks
    """Told on the feeder's thread of a record that its partition is held at because it kills."""


class Feeder:
    """One worker's part of the log, chunk by chunk."""

    def __init__(self, settings: EngineSettings, hooks: Hooks) -> None:
        self.settings = settings
        self._hooks = hooks
        self._directory = DataDirectory(settings.data_dir)
        self._stop = threading.Event()
        self._finished = threading.Event()
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._group: Group | None = None
        self._hand_over: HandOver | None = None
        self._broker_errors = BrokerErrors(hooks.clock, hooks.wall)
        self._tried_s = 0.0
        self._committed_s = 0.0
        self.notes: Notes | None = None
        """What workers noted, as it was read last; None until it was."""
        self._notes_due = True

    # -- life --------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop, put: Put) -> None:
        """Take the data directory, join the group and begin to feed.

        Raises:
            DataDirectoryInUse: naming the process that has it.
        """
        self._directory.lock()
        admin = clients.admin(self.settings)
        inquiry = TopicInquiry(admin, self._hooks.clock, patience_s=_PATIENCE_S)
        recovery = self._recovery(inquiry)

        def recover_one(partition: int, cancelled: Cancelled) -> PartitionTable:
            return recover(recovery, partition, cancelled)

        group = Group(
            clients.group_consumer(self.settings, self._broker_errors.note),
            self.settings.topic,
            recover_one,
            self._hooks.fail_stop,
            records_max=self.settings.chunk_records_max,
            note=self._hooks.note,
        )
        self._group = group
        self._hand_over = HandOver(
            settings=self.settings,
            group=group,
            inquiry=inquiry,
            continuity=Continuity(recovery.consumer),
            outcomes=Outcomes(group, self._hooks.fail_stop),
            clock=self._hooks.clock,
            crash_at=self._hooks.crash_at,
            given_up=self._hooks.given_up,
            stopping=self._stop.is_set,
            loop=loop,
            put=put,
        )
        self._thread = threading.Thread(
            target=self._main, args=(group, self._hand_over), name="feeder", daemon=True
        )
        self._thread.start()

    def drain(self, timeout_s: float | None = None) -> bool:
        """Let the chunk in hand finish, hand everything back, leave the group. Blocks.

        Call it in an executor while the agent still runs: it has to settle that chunk.

        Returns:
            Whether it is done within `timeout_s`; None waits for as long as it takes, which the
            settle deadline bounds.
        """
        if self._thread is None:
            return True
        self._stop.set()
        return self._finished.wait(timeout_s)

    # -- what it says ------------------------------------------------------------------------------

    @property
    def tables(self) -> dict[int, PartitionTable]:
        """Open tables by partition; a snapshot, whose tables may be closed at any time."""
        return self._group.tables if self._group is not None else {}

    @property
    def held(self) -> dict[int, str]:
        """Partitions that wait for a person, and why; a snapshot."""
        return self._group.held if self._group is not None else {}

    @property
    def serving(self) -> bool:
        """Whether it is a member of the group, and has read others' notes and its own state."""
        return self.notes is not None and self._group is not None and self._group.is_ready

    def figures(self) -> Figures:
        """Progress and lag of every partition, and counts since the start."""
        return figures_of(self._group, self._hand_over, self._broker_errors.count)

    @property
    def broker_errors_since(self) -> str | None:
        """Since when the broker fails, as the log says it; None while it does not."""
        return self._broker_errors.since

    # -- requests ----------------------------------------------------------------------------------

    def hold(self, partition: int, reason: str) -> None:
        """Keep a partition assigned, but do not read it until `resume`. Others go on."""
        self._ask(partition, lambda group: group.hold(group.assigned[partition], reason))

    def pause(self, partition: int) -> None:
        """Do not read a partition until `resume`."""
        self._ask(partition, lambda group: group.pause(group.assigned[partition]))

    def resume(self, partition: int) -> None:
        """Read a paused or held partition again; see `Isolation.resumed` for killing records."""
        self._ask(partition, lambda group: group.resume(group.assigned[partition]))

    def renew_notes(self) -> None:
        """Read what workers noted once more."""
        self._notes_due = True

    def rebuild(self, partition: int) -> None:
        """Give up a partition's state here and read it from the packed log, unsent facts included.

        For a ledger that lacks what it had acknowledged: facts are kept here only until then.
        """
        self._ask(partition, lambda group: group.rebuild(group.assigned[partition]))

    def _ask(self, partition: int, action: Callable[[Group], None]) -> None:
        def request() -> None:
            if self._group is not None and partition in self._group.assigned:
                action(self._group)

        self._requests.put(request)

    # -- the thread --------------------------------------------------------------------------------

    def _main(self, group: Group, hand_over: HandOver) -> None:
        try:
            group.subscribe()
            while not self._stop.is_set():
                self._round(group, hand_over)
            group.close()
            self._directory.unlock()
        except ConsumerFatal as error:
            self._hooks.fail_stop(ExitCode.CONSUMER_FATAL, str(error))
        except KafkaException as exception:
            said = error_of(exception)
            code = ExitCode.CONSUMER_FATAL if is_final(said) else ExitCode.ENGINE_FAILED
            self._hooks.fail_stop(code, text_of(said))
        except BaseException as error:  # the last fence of this thread
            log.error("feeder_failed", exc_info=error)
            self._hooks.fail_stop(ExitCode.ENGINE_FAILED, f"{type(error).__name__}: {error}")
        finally:
            self._finished.set()

    def _round(self, group: Group, hand_over: HandOver) -> None:
        while not self._requests.empty():
            self._requests.get_nowait()()
        group.take_recovered()
        group.seek_back()
        if self._notes_due:
            self._read_notes(group)
        messages = self._fetch(group.consumer)
        if messages:
            hand_over.batch(messages)
        self._broker_errors.look()
        now_s = self._hooks.clock()
        if now_s - self._committed_s >= _COMMIT_EVERY_S:
            self._committed_s = now_s
            group.offsets.commit(group.assigned.values(), wait=False)
            group.note_marks()
        if now_s - self._tried_s >= _TRY_EVERY_S:
            self._tried_s = now_s
            group.try_waiting()

    def _fetch(self, consumer: Consumer) -> list[Message]:
        """What has arrived, as soon as there is anything, with what follows on its heels.

        What comes while a batch is in hand is the next batch: the busier the worker, the larger
        its batches, and in a trickle nothing waits for company that does not come.
        """
        first = consumer.consume(1, _IDLE_S)
        if not first:
            return first
        more = self.settings.chunk_records_max - 1
        return first + consumer.consume(more, self.settings.fetch_wait_s)

    def _read_notes(self, group: Group) -> None:
        # Whoever asks while they are read means a later reading.
        self._notes_due = False
        asked_s = self._hooks.clock()
        texts = group.read_notes(self.settings.partitions)
        if texts is None:
            self._notes_due = True
        else:
            self.notes = Notes(texts, asked_s)

    def _recovery(self, inquiry: TopicInquiry) -> Recovery:
        settings = self.settings
        return Recovery(
            topic=settings.topic,
            packed_topic=settings.packed_topic,
            partitions=settings.partitions,
            directory=self._directory,
            width_ms=generations.width_ms(settings.horizon_ms),
            reach_back_ms=settings.reach_back_ms,
            rules=self._hooks.rules,
            consumer=lambda: clients.reader(settings),
            inquiry=inquiry,
            cache=Cache(settings.block_cache_bytes),
            acknowledged=self._hooks.acknowledged,
            layout=self._hooks.layout,
            before=self._hooks.before,
        )
