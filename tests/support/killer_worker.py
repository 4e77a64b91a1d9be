"""`python -m tests.support.killer_worker worker`: a worker that some records end.

As a bug of a native library would: no exception, no last word.
"""

import os
import signal
import sys
from typing import Any, Final
from unittest.mock import patch

from streams.cli import main
from streams.core import admission
from streams.core.envelope import decode

WHEN_READ: Final = "kills-when-read"
"""In its event key: decoding it kills."""


def _decode(key: bytes | None, value: bytes | None) -> Any:
    if WHEN_READ.encode() in (value or b""):
        os.kill(os.getpid(), signal.SIGKILL)
    return decode(key, value)


if __name__ == "__main__":
    with patch.object(admission, "decode", _decode):
        sys.exit(main.run(sys.argv[1:]))
