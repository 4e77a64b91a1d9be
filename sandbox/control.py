"""The commands of a person → a supervisor that is started, attached to, asked or stopped."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sandbox import clock, machine, prerequisites, wanted
from sandbox.follow import Follower
from sandbox.paths import Paths, read_json
from sandbox.process import ProcessRef, alive, ref_of, send
from sandbox.stack import part_environment
from sandbox.stripe import ROOT
from sandbox.supervisor import sweep
from sandbox.training import train
from sandbox.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

READY_S = 120.0
ADDRESSES = (
    "postgres_dsn",
    "writer_dsn",
    "ledger_dsn",
    "kafka_bootstrap",
    "connect_url",
    "stripe_url",
)


class NotRunningError(Exception):
    """There is no running sandbox in this directory. Start one with `python -m sandbox up`."""


class ControlError(Exception):
    """The supervisor did not do what was asked. The message says where to look."""


@dataclass(frozen=True, slots=True)
class Console:
    """Where a command tells people what happens."""

    say: Callable[[str], None]
    complain: Callable[[str], None]


def running(paths: Paths) -> ProcessRef | None:
    """The supervisor of this directory, if one lives."""
    record = read_json(paths.pid_file_of_supervisor)
    if record is None:
        return None
    ref = ProcessRef(int(record["pid"]), str(record["birth"]))
    return ref if alive(ref) else None


def up(
    paths: Paths, asked: Wanted, environ: Mapping[str, str], console: Console, follow: bool
) -> int:
    """Starts the stack, or attaches to the one that runs.

    Returns:
        0 once everything is ready, 78 for missing prerequisites, 1 if the start failed, 130 after
        Ctrl-C (everything stopped again).
    """
    supervisor = running(paths)
    if supervisor is not None:
        return _attach(paths, supervisor, asked, console, follow)
    for line in sweep(paths):
        console.say(f"cleaned up after a killed supervisor: {line}")
    problems = prerequisites.find_problems(machine.probe(paths, environ))
    if problems:
        console.complain(prerequisites.render(problems))
        return prerequisites.EXIT_CODE
    paths.make()
    found = machine.machine(environ, console.say)
    train(paths, found, part_environment(environ), console.say)
    wanted.write(paths.wanted_json, asked)
    paths.progress.write_text("", encoding="utf-8")
    follower = Follower(paths, _spawn(paths, environ), console.say)
    return _watch(paths, follower, console, follow)


def down(paths: Paths, console: Console) -> int:
    """Stops everything in order, and what a killed supervisor left behind."""
    supervisor = running(paths)
    if supervisor is not None:
        offset = paths.progress.stat().st_size
        send(supervisor, signal.SIGTERM)
        follower = Follower(paths, supervisor, console.say, offset)
        follower.until("gone")
        return 0
    lines = sweep(paths)
    paths.sandbox_json.unlink(missing_ok=True)
    for line in lines:
        console.say(line)
    if not lines:
        console.say(f"nothing runs in {paths.dir}")
    return 0


def state(paths: Paths) -> dict[str, Any]:
    """The content of sandbox.json of a running stack.

    Raises:
        NotRunningError: Nothing runs.
    """
    value = read_json(paths.sandbox_json) if running(paths) is not None else None
    if value is None:
        message = f"no sandbox runs in {paths.dir}; start one with `python -m sandbox up`"
        raise NotRunningError(message)
    return value


def change(paths: Paths, wish: Callable[[Wanted], Wanted]) -> None:
    """Changes what is wanted; the supervisor follows within a fraction of a second.

    Raises:
        NotRunningError: Nothing runs.
    """
    state(paths)
    wanted.write(paths.wanted_json, wish(wanted.read(paths.wanted_json) or Wanted()))


def set_workers(paths: Paths, number: int) -> None:
    """Scales the workers; blocks until the new number is ready.

    Raises:
        NotRunningError: Nothing runs.
        ControlError: They did not become ready in time.
    """
    change(paths, lambda has: replace(has, workers=number))

    def reached(parts: Mapping[str, Any]) -> bool:
        workers = [name for name in parts if name.startswith("worker-")]
        ready = [name for name in workers if parts[name]["state"] == "ready"]
        return len(workers) == len(ready) == number

    _await(paths, reached, f"{number} workers are not ready; see {paths.logs}")


def hold(paths: Paths, part: str) -> None:
    """Stops one part until `release`; blocks until its process is gone.

    Raises:
        NotRunningError: Nothing runs.
        ControlError: There is no such part, or it did not stop.
    """
    _known(paths, part)
    change(paths, lambda has: has.hold(part))
    _await(paths, lambda parts: parts[part]["state"] == "held", f"{part} did not stop")


def release(paths: Paths, part: str) -> None:
    """Starts a held part; blocks until it is ready.

    Raises:
        NotRunningError: Nothing runs.
        ControlError: There is no such part, or it did not become ready.
    """
    _known(paths, part)
    change(paths, lambda has: has.release(part))
    _await(paths, lambda parts: parts[part]["state"] == "ready", f"{part} is not ready")


def shift_clock(paths: Paths, seconds: int) -> None:
    """Sets the offset of the stack's wall clock.

    Raises:
        NotRunningError: Nothing runs.
        ControlError: The stack runs on the machine's own clock.
    """
    state(paths)
    has = wanted.read(paths.wanted_json)
    if has is None or not has.shift_clock:
        message = "this stack runs on the machine's clock; `down`, then `up --shift-clock`"
        raise ControlError(message)
    clock.set_offset(paths.clock, seconds)


def wipe(paths: Paths) -> None:
    """Deletes a stopped sandbox. Refuses a directory that no sandbox made.

    Raises:
        ControlError: It is not a sandbox, or still runs.
    """
    if not paths.dir.exists():
        return
    if running(paths) is not None or not paths.ports_json.exists():
        message = f"{paths.dir} is no stopped sandbox (no ports.json in it); nothing was deleted"
        raise ControlError(message)
    shutil.rmtree(paths.dir)


def describe_state(value: Mapping[str, Any]) -> list[str]:
    """One line per part of a running stack, then the addresses."""
    pids = value["pids"]
    of_part = {name: pid for name, pid in pids.items() if name != "workers"}
    of_part |= {f"worker-{number}": each["pid"] for number, each in enumerate(pids["workers"])}
    lines = [f"stack {value['state']} (supervisor {value['supervisor_pid']})"]
    for name, part in value["parts"].items():
        pid = of_part.get(name)
        process = f"pid {pid}" if pid else "-"
        restarts = f"restarts {part['restarts']}"
        lines.append(f"  {name:<12} {part['state']:<9} {process:<12} {restarts}  {part['text']}")
    return lines + [f"  {name:<16} {value[name]}" for name in ADDRESSES]


def _known(paths: Paths, part: str) -> None:
    pids = state(paths)["pids"]
    names = [name for name in pids if name != "workers"]
    names += [f"worker-{number}" for number in range(len(pids["workers"]))]
    if part not in names:
        message = f"no part {part!r}; there are {', '.join(names)}"
        raise ControlError(message)


def _await(paths: Paths, reached: Callable[[Mapping[str, Any]], bool], otherwise: str) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if reached(state(paths)["parts"]):
            return
        time.sleep(0.05)
    message = f"{otherwise} after {READY_S:.0f} s"
    raise ControlError(message)


def _attach(
    paths: Paths, supervisor: ProcessRef, asked: Wanted, console: Console, follow: bool
) -> int:
    console.say(f"already running (supervisor {supervisor.pid}, {paths.dir})")
    has = wanted.read(paths.wanted_json)
    for line in wanted.differences(has, asked) if has else []:
        console.say(f"differs: {line}")
    return _watch(paths, Follower(paths, supervisor, console.say), console, follow)


def _watch(paths: Paths, follower: Follower, console: Console, follow: bool) -> int:
    """Follows a start; Ctrl-C stops in order."""
    try:
        event = follower.until("ready", "failed")
        if event.event != "ready":
            follower.until("gone")
            console.complain(_why(paths, event.text))
            return 1
        value = state(paths)
        for name in ADDRESSES:
            console.say(f"  {name:<16} {value[name]}")
        console.say(f"  sandbox.json     {paths.sandbox_json}")
        if follow:
            console.say("Ctrl-C stops everything in order")
            follower.until("gone")
    except KeyboardInterrupt:
        console.say("stopping in order")
        send(follower.supervisor, signal.SIGTERM)
        follower.until("gone")
        return 0 if follow else 130
    return 0


def _why(paths: Paths, text: str) -> str:
    what = text or "the supervisor ended; " + "".join(
        (paths.logs / "supervisor.log").read_text(encoding="utf-8").splitlines()[-1:]
    )
    return f"the sandbox did not start: {what}\nEverything was stopped again. Logs: {paths.logs}"


def _spawn(paths: Paths, environ: Mapping[str, str]) -> ProcessRef:
    """Starts the supervisor in its own session and waits until it holds the directory.

    Raises:
        ControlError: It ended at once.
    """
    with (paths.logs / "supervisor.log").open("ab") as log:
        child = subprocess.Popen(
            (sys.executable, "-m", "sandbox", "supervise", "--dir", str(paths.dir)),
            cwd=ROOT,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    ref = ref_of(child.pid)
    try:
        while ref is not None and child.poll() is None:
            if running(paths) == ref:
                return ref
            time.sleep(0.02)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    message = f"the supervisor ended at once with {child.poll()}; see {paths.logs}/supervisor.log"
    raise ControlError(message)
