"""Virtual time: one event loop, many processes, one history.

Nothing waits: where everybody sleeps, time goes on to the first who wakes. A process is a context
in which callbacks run; while it is stopped they pile up as signals and packets do, and once it is
dead they are gone. Whatever happens is noted in order, and the hash of the notes is the history.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from hashlib import blake2b
from typing import Any, Final, Literal

T0_US: Final = 1_795_910_400_000_000
"""2026-11-29T00:00Z, when every simulation begins."""
_ROUNDS_AT_THE_END: Final = 50
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
        self._waiting: deque[asyncio.Handle] = deque()
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    @property
    def alive(self) -> bool:
        """Whether it may still do something, be it later."""
        return self.state in {"running", "stopped"}

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

    def defer(self, handle: asyncio.Handle) -> None:
        """A callback that cannot run now."""
        if self.state == "stopped":
            self._waiting.append(handle)

    def step(self, name: str) -> None:
        """A named step is reached, at which faults may strike."""
        self.check()
        self.hook(name)
        self.check()

    def check(self) -> None:
        """Ends whoever still runs in a dead process; every way out of it asks."""
        if not self.alive:
            raise asyncio.CancelledError


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
_OUTSIDE: Final = Context()
"""Of no process: what happens here, nobody can stop."""


class Timeline(asyncio.BaseEventLoop):
    """The loop on virtual time."""

    _ready: "deque[asyncio.Handle]"
    _scheduled: "list[asyncio.TimerHandle]"

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._hash = blake2b(digest_size=16)
        self.kept: list[str] | None = None
        """The notes themselves, where somebody wants to read them."""
        self.errors: list[BaseException] = []
        """What was raised where nobody waits for it."""
        self._over = False
        self.set_exception_handler(self._raised)

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

    def history(self) -> str:
        """Equal for equal histories."""
        return self._hash.hexdigest()

    # -- the loop ----------------------------------------------------------------------------------

    def take_up(self, waiting: "deque[asyncio.Handle]") -> None:
        """Callbacks of a process that goes on."""
        self._ready.extend(waiting)
        waiting.clear()

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)
        if not ready:
            if not scheduled:
                raise StalledError
            self.now_s = max(self.now_s, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self.now_s:
            ready.append(heapq.heappop(scheduled))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # no other way to it
            if process is not None and process.state in _SILENT:
                process.defer(handle)
            else:
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are left out when their time comes."""

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
