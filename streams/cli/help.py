"""The help of every command, written down: a command line that asks for help → the text, or None.

A command is known by its options alone, and they stand beside what it does with Kafka or Stripe:
asking it would load those first, for two seconds. `python -m tests.docs` writes the texts.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import msgspec

FILE: Final = "help.json"


def written(arguments: Sequence[str]) -> str | None:
    """The help that is asked for, where nothing else is; None: the command answers itself."""
    *path, last = arguments or [""]
    if last != "--help" or not path:
        return None
    content = files("streams.cli").joinpath(FILE).read_bytes()
    return msgspec.json.decode(content, type=dict[str, str]).get(" ".join(path))
