"""A topic that was judged → `tailrace replay` of all of it, dry, held to the oracle.

The very command that a person types, as a process of its own. It is wrong if it finds a difference,
leaves a record or a reading out, comes to other figures than the oracle, or if a single request
reached the stand-in for Stripe while it ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sandbox.stripe_sandbox.client import StandIn
from tests.bench.stack import ROOT, BenchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.bench.oracle import Tally
    from tests.bench.stack import Stack

KINDS: Final = ("accepted", "review", "dead")
"""First words of the verdicts that the command tells figures of."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One dry replay of a whole topic."""

    records: int
    cpu_s: float
    """Of its process from start to end: that of Python and its imports too."""
    wall_s: float
    calls: int
    """Requests that reached the stand-in meanwhile."""
    wrong: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Records per CPU-second."""
        return self.records / self.cpu_s

    def line(self) -> str:
        """For a person."""
        return (
            f"scaling  dry replay  {self.rate:9,.0f} records/CPU-s  CPU {self.cpu_s:.1f} s  wall "
            f"{self.wall_s:.1f} s  {self.calls} Stripe calls  {'; '.join(self.wrong) or 'exact'}"
        )


def replay(stack: Stack, env: Mapping[str, str], folder: Path, expected: Tally) -> Replay:
    """Replays the events topic against the ledger that the environment names.

    Raises:
        BenchError: it ended without an answer; the text says where its own is.
    """
    log, answer = folder / "replay.log", folder / "replay.json"
    command = (sys.executable, "-m", "streams.cli.main", "replay", "--json")
    stand_in = StandIn(str(stack.facts["stripe_url"]))
    calls = _calls(stand_in)
    began_s = time.monotonic()
    with log.open("wb") as errors, answer.open("wb") as out:
        child = subprocess.Popen(
            (*command, "--dir", str(stack.directory)), env=dict(env), cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
        )  # fmt: skip
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - began_s
    try:
        document = msgspec.json.decode(answer.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BenchError(f"replay ended with {child.returncode}; see {log}") from error
    calls = _calls(stand_in) - calls
    wrong = differences(document, expected, calls)
    return Replay(expected.records, used.ru_utime + used.ru_stime, wall_s, calls, wrong)


def differences(document: Mapping[str, Any], expected: Tally, calls: int) -> tuple[str, ...]:
    """What of a replay's document, and of the calls made meanwhile, is not as it must be."""
    told = dict.fromkeys(KINDS, 0)
    for figure in document["figures"]:
        kind = figure["verdict"].partition(" ")[0]
        told[kind] = told.get(kind, 0) + figure["events"]
    must = {
        "records": (document["records"], expected.records),
        "differences": (document["differing"], 0),
        "compared in part": (document["partly"], 0),
        "partitions untold": (len(document["untold"]), 0),
        "accepted": (told["accepted"], expected.accepted),
        "late": (told["review"], expected.late),
        "malformed": (told["dead"], expected.malformed),
        "Stripe calls": (calls, 0),
    }
    wrong = [f"{what}: {is_}, must be {was}" for what, (is_, was) in must.items() if is_ != was]
    if not document["equal"]:
        wrong.append("nothing was compared")
    return tuple(wrong)


def _calls(stand_in: StandIn) -> int:
    """Answers that the stand-in has given, to whatever was asked."""
    counts = stand_in.request_counts()
    return sum(count for what, count in counts.items() if what.startswith("status "))
