"""The stack that drills share: given out sound, and made anew where one has been wrecked."""

from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg
import requests

from sandbox import control
from sandbox.paths import Paths
from tests.drills.asked import assert_nothing_lost
from tests.support import witness
from tests.support.live import LiveStack, live_stack
from tests.support.stack import StackError
from tests.support.waiting import NotInTimeError, until

CONNECTOR: Final = "outbox-sandbox"
SETTLING_S: Final = 30.0
"""How long a part that is coming back may take to do so, before the stack counts as wrecked."""


class SharedStack:
    """One stack at a time, started when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        """Starts nothing yet.

        Args:
            directory: below which each stack has its own.
        """
        self._directory = directory
        self._made = 0
        self._stack: LiveStack | None = None
        self._running = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running.close()

    def sound(self) -> LiveStack:
        """A stack whose parts all run; another than the last one where that is wrecked.

        Raises:
            StackError: none can be had.
        """
        if self._stack is not None:
            fault = fault_of(self._stack)
            if not fault:
                return self._stack
            witness.did(f"the stack of the drills before is given up: {fault}")
            self._give_up()
        self._made += 1
        self._stack = self._running.enter_context(
            live_stack(self._directory / f"stack-{self._made}")
        )
        return self._stack

    def clear(self, *, broken: bool) -> None:
        """Ends what a drill has left running; a stack on which it failed is not used again."""
        if self._stack is None:
            return
        if broken:
            self._give_up()
            return
        try:
            self._stack.stand_in.clear_faults()
        except requests.RequestException:  # it was left down; the next drill finds out as well
            self._give_up()
        else:
            self._stack.stop_workers()

    def judge_again(self) -> None:
        """Judges the books of every drill once more: a later one may have changed an earlier one's.

        What is still on its way is read first, by one more worker.

        Raises:
            AssertionError: some books are not any more what they were when their drill ended.
        """
        stack = self._stack
        if stack is None or not stack.judges or fault_of(stack):
            return
        stack.start_worker("last")
        assert_nothing_lost(stack)
        for judge in stack.judges.values():
            judge()

    def _give_up(self) -> None:
        self._stack = None
        old, self._running = self._running, ExitStack()
        with suppress(StackError):  # what cannot even be stopped is no reason to stop here
            old.close()


def fault_of(stack: LiveStack) -> str:
    """What is wrong with a stack; empty where it is sound. Waits for parts that come back."""

    def found() -> str:
        try:
            return _fault(stack)
        except (OSError, psycopg.Error, requests.RequestException) as error:
            return str(error) or type(error).__name__

    with suppress(NotInTimeError):
        until("a sound stack", lambda: not found(), SETTLING_S)
    return found()


def _fault(stack: LiveStack) -> str:
    facts = stack.facts
    if "supervisor_pid" in facts and control.running(Paths(stack.directory)) is None:
        return "nobody keeps it any more"
    sound = {"ready", "done"}
    down = [name for name, part in facts["parts"].items() if part["state"] not in sound]
    if down:
        return f"not ready: {', '.join(down)}"
    url = f"{facts['connect_url']}/connectors/{CONNECTOR}/status"
    answer = requests.get(url, timeout=10)
    answer.raise_for_status()
    status = answer.json()
    states = {status["connector"]["state"], *(task["state"] for task in status["tasks"])}
    if not status["tasks"] or states != {"RUNNING"}:
        return f"the connector is {', '.join(sorted(states))}"
    with psycopg.connect(facts["ledger_owner_dsn"]) as ledger:
        halted = ledger.execute("SELECT kind FROM ledger.halt WHERE lifted_at IS NULL").fetchone()
    return f"publishing is halted: {halted[0]}" if halted else ""
