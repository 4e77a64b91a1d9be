"""`python -m tests.bench.profiled RECORD MODULE …`: a module under a profiler.

The clock of the profiler is the CPU time of the main thread, so that waiting for events is nothing.
"""

from __future__ import annotations

import cProfile
import runpy
import sys
import time


def main() -> None:
    """Runs the module as Python would; the record is written when it ends."""
    _, record, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    profile = cProfile.Profile(time.thread_time)
    profile.enable()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        profile.disable()
        profile.dump_stats(record)


if __name__ == "__main__":
    main()
