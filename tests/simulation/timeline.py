"""Virtual time: one event loop, many processes, one history.

Nothing waits: where everybody sleeps, time goes on to the first who wakes. A process is a context
in which callbacks run; while it is stopped they pile up as signals and packets do, and once it is
dead they are gone. Whatever happens is noted in order, and the hash of the notes is the history.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from hashlib import blake2b
from typing import Any, Final, Literal

from tests.simulation.turns import Call

T0_US: Final = 1_795_910_400_000_000
"""2026-11-29T00:00Z, when every simulation begins."""
_ROUNDS_AT_THE_END: Final = 50
_ALIVE: Final = frozenset({"running", "stopped"})
_SILENT: Final = frozenset({"stopped", "dead"})


class StalledError(Exception):
    """Everybody waits for somebody else, and no timer is left that could help."""


class Process:
    """Something that can be stopped and killed."""

    def __init__(self, timeline: "Timeline", name: str) -> None:
        self.name = name
        self.state: Literal["running", "stopped", "dead", "ending"] = "running"
        self.stopped_at_s = 0.0
        self.hook: Callable[[str], None] = lambda _step: None
        """Looks at each named step; may stop or kill."""
        self._timeline = timeline
        self._waiting: deque[Call] = deque()
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    @property
    def alive(self) -> bool:
        """Whether it may still do something, be it later."""
        return self.state in _ALIVE

    def spawn(self, body: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """A task of this process."""
        return self._timeline.create_task(body, context=self._context)

    def stop(self) -> None:
        """SIGSTOP: nothing of it runs until `go_on`; what reaches it waits."""
        if self.state == "running":
            self.state = "stopped"
            self.stopped_at_s = self._timeline.now_s

    def go_on(self) -> None:
        """SIGCONT."""
        if self.state == "stopped":
            self.state = "running"
            self._timeline.take_up(self._waiting)

    def kill(self) -> None:
        """SIGKILL: nothing of it runs again, neither `finally` nor `except`."""
        self.state = "dead"
        self._waiting.clear()

    def defer(self, call: "Call") -> None:
        """A callback that cannot run now."""
        if self.state == "stopped":
            self._waiting.append(call)

    def step(self, name: str) -> None:
        """A named step is reached, at which faults may strike."""
        self.check()
        self.hook(name)
        self.check()

    def check(self) -> None:
        """Ends whoever still runs in a dead process; every way out of it asks."""
        if self.state not in _ALIVE:
            raise asyncio.CancelledError


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
_OUTSIDE: Final = Context()
"""Of no process: what happens here, nobody can stop."""


class Timeline(asyncio.BaseEventLoop):
    """The loop on virtual time."""

    _ready: "deque[Call]"
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._timers: list[tuple[float, Call]] = []
        self._hash = blake2b(digest_size=16)
        self.kept: list[str] | None = None
        """The notes themselves, where somebody wants to read them."""
        self.strikes: Counter[str] = Counter()
        """How often each fault has met something, by name: see `strike`."""
        self.errors: list[BaseException] = []
        """What was raised where nobody waits for it."""
        self._over = False
        self.set_exception_handler(self._raised)
        # Asked for each future; this answers no without a frame of its own.
        self.get_debug = bool  # type: ignore[method-assign]

    # -- time --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    def now_us(self) -> int:
        """Microseconds since 1970 by the true clock."""
        return T0_US + round(self.now_s * 1_000_000)

    def outside(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Runs in no process: it happens whoever dies."""
        self.call_later(delay_s, callback, context=_OUTSIDE)

    def _raised(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self._over:
            self.errors.append(error)

    # -- history -----------------------------------------------------------------------------------

    def note(self, *what: object) -> None:
        """One thing that happened; of values whose text is the same in every run."""
        if self._over:
            return
        line = f"{self.now_s:.6f} " + " ".join(map(str, what))
        self._hash.update(line.encode() + b"\n")
        if self.kept is not None:
            self.kept.append(line)

    def strike(self, fault: str) -> None:
        """A fault has met something just now: what was merely planned for it counts nothing."""
        if not self._over:
            self.strikes[fault] += 1

    def history(self) -> str:
        """Equal for equal histories."""
        return self._hash.hexdigest()

    # -- the loop ----------------------------------------------------------------------------------
    def call_soon(  # type: ignore[override]  # generic over a pack of arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        call = Call(self.now_s, callback, args, context)
        self._ready.append(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        call = Call(when, callback, args, context)
        heapq.heappush(self._timers, (when, call))
        return call

    def take_up(self, waiting: "deque[Call]") -> None:
        """Callbacks of a process that goes on."""
        self._ready.extend(waiting)
        waiting.clear()

    def _run_once(self) -> None:
        self._let_time_pass()
        ready = self._ready
        for _ in range(len(ready)):
            call = ready.popleft()
            if call.gone:
                continue
            process = call.context.get(PROCESS)
            if process is not None and process.state in _SILENT:
                process.defer(call)
                continue
            try:
                call.context.run(call.callback, *call.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - noted, as asyncio notes it
                self.call_exception_handler({"message": "a callback failed", "exception": error})

    def _let_time_pass(self) -> None:
        """To the first who wakes, where nobody has anything to do."""
        timers, pop = self._timers, heapq.heappop
        while timers and timers[0][1].gone:
            pop(timers)
        if not self._ready:
            if not timers:
                raise StalledError
            self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= self.now_s:
            self._ready.append(pop(timers)[1])

    def _write_to_self(self) -> None:
        """There is one thread."""

    def _process_events(self, event_list: object) -> None:
        """There are no files."""

    def run_in_executor(  # type: ignore[override]  # generic over a pack of arguments
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> Any:
        """At once: what blocks elsewhere answers at once here, and threads there are none."""
        del executor
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - handed to whoever waits, as a thread does
            done.set_exception(error)
        return done

    def end(self, processes: list[Process]) -> None:
        """Ends every task, so that nothing is left half done behind the run."""
        self._over = True
        for process in processes:
            process.state = "ending"
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(_ROUNDS_AT_THE_END):
            if not self._ready:
                break
            self._run_once()
        for task in asyncio.all_tasks(self):
            # Its first step went with its process.
            task.get_coro().close()
        self.close()
