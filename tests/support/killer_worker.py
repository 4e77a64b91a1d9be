"""`python -m tests.support.killer_worker worker`: a worker that some records end.

As a bug of a native library would: no exception, no last word. A record with one mark ends whoever
decodes it, one with the other ends whoever is handed it, decoded or not.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

from streams.agents import admit
from streams.cli import main
from streams.core import admission
from streams.core.admission import decide
from streams.core.decided import SourceRecord
from streams.core.envelope import decode

WHEN_READ: Final = "kills-when-read"
"""In its event key: decoding it kills."""
UNREAD: Final = "kills-unread"
"""In its event key: having it in hand kills."""


def _die_of(value: bytes | None, mark: str) -> None:
    if mark.encode() in (value or b""):
        os.kill(os.getpid(), signal.SIGKILL)


def _decode(key: bytes | None, value: bytes | None) -> Any:
    _die_of(value, WHEN_READ)
    return decode(key, value)


def _decide(records: Sequence[SourceRecord], *arguments: Any, **options: Any) -> Any:
    for record in records:
        _die_of(record.value, UNREAD)
    return decide(records, *arguments, **options)


if __name__ == "__main__":
    with patch.object(admission, "decode", _decode), patch.object(admit, "decide", _decide):
        sys.exit(main.run(sys.argv[1:]))
