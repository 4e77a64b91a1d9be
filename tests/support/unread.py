"""Records that nobody has looked into, because workers ended with them: sent again as they say.

Their identity is known from the bytes that were kept; nobody has judged it, so it is still owed.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec
import psycopg

from tests.support.live import LiveStack

OPEN: Final = (
    "SELECT parked_id, record FROM ledger.parked WHERE state = 'open' AND reason = 'unread'"
)
AGAIN: Final = "SELECT metering.reemit(%s, %s, 'drill: parked unread')"


class _Row(msgspec.Struct):
    received_at: datetime


def send_unread_again(stack: LiveStack) -> int:
    """Has the row of each such record sent again and ends its item; how many there were."""
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        items = ledger.execute(OPEN).fetchall()
    for item, record in items:
        since = msgspec.json.decode(record, type=_Row).received_at
        with psycopg.connect(stack.facts["source_dsn"], autocommit=True) as ops:
            ops.execute(AGAIN, (since, since + timedelta(microseconds=1)))
        ended = stack.tailrace(
            "review", "reject", str(item), "--yes", "--reason", "drill: sent again"
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    return len(items)
