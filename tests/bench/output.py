"""One line of a benchmark to whoever watches it."""

import sys


def say(text: str) -> None:
    """Prints a line at once, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
