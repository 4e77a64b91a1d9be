"""Open transactions of the source → how far minutes may be sealed, and who holds them back.

A transaction that may still commit usage dates its rows when it records them, so no minute after
its begin is complete. A young one is everyday life; an old one keeps every audit from sealing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streams.cli.database import Connection, row, rows
from streams.core.audit import Judgment, sealable
from streams.core.instant import FIRST_US, MINUTE_US, SECOND_US, wire_text


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that may still commit; `pid` or `gid` names it, the other is None."""

    pid: int | None
    gid: str | None
    user: str
    application: str
    since_us: int
    """When it began; of a prepared one, when it was prepared."""
    age_us: int
    writes_usage: bool

    @property
    def floor_us(self) -> int:
        """No row of it is dated before this."""
        # The begin of a prepared one is known no more, so any minute may still get rows of it.
        return FIRST_US if self.gid is not None and self.writes_usage else self.since_us

    @property
    def fix(self) -> str:
        """What to type to be rid of it."""
        if self.gid is not None:
            quoted = self.gid.replace("'", "''")
            return f"COMMIT PREPARED '{quoted}', or ROLLBACK PREPARED '{quoted}'"
        return f"end it in its program, or SELECT pg_terminate_backend({self.pid})"

    def document(self) -> dict[str, Any]:
        """As it stands in the JSON report."""
        return {
            "pid": self.pid,
            "gid": self.gid,
            "user": self.user,
            "application": self.application,
            "since": wire_text(self.since_us),
            "age_s": round(self.age_us / SECOND_US, 3),
            "writes_usage": self.writes_usage,
            "fix": self.fix,
        }

    def __str__(self) -> str:
        """One line for an operator."""
        since = wire_text(self.since_us)
        if self.gid is not None:
            return f"prepared transaction {self.gid} of {self.user}, since {since}"
        program = self.application or "a program without a name"
        return f"pid {self.pid} ({self.user}, {program}), open since {since}"


@dataclass(frozen=True, slots=True)
class OpenMinute:
    """A minute that moved while it was looked at; `holders` may still commit into it."""

    minute_us: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Floor:
    """Where sealing has to end, as read before anything else of an audit."""

    now_us: int
    """The source database's clock."""
    transactions: tuple[OpenTransaction, ...]

    @property
    def us(self) -> int:
        """No transaction that may still commit usage began before this."""
        return _lowest(self.now_us, self.transactions)

    def old(self, age_us_max: int) -> tuple[OpenTransaction, ...]:
        """The transactions that are open for longer."""
        return tuple(each for each in self.transactions if each.age_us > age_us_max)

    def held_back(
        self, judgments: Sequence[Judgment], old: Sequence[OpenTransaction], sealed: Iterable[int]
    ) -> list[int]:
        """Minutes that are equal and over, and not sealed because of these transactions alone."""
        others = [each for each in self.transactions if each not in old]
        without = sealable(judgments, _lowest(self.now_us, others))
        return sorted(without.keys() - sealable(judgments, self.us).keys() - set(sealed))


def _lowest(now_us: int, transactions: Iterable[OpenTransaction]) -> int:
    return min([now_us, *(each.floor_us for each in transactions)])


def read_floor(source: Connection) -> Floor:
    """What is open in the source's database now; to be read before the registry.

    Raises:
        psycopg.Error: the database refused or went away.
    """
    now_us = int(row(source, "source_now")["now_us"])
    return Floor(now_us, tuple(_open(r, now_us) for r in rows(source, "open_transactions")))


def open_minutes(source: Connection, judgments: list[Judgment]) -> list[OpenMinute]:
    """Usage minutes that moved, with the transactions that may still commit into them."""
    moved = sorted({j.minute_us for j in judgments if j.verdict == "open" and j.group != "canary"})
    if not moved:
        return []
    writing = [each for each in read_floor(source).transactions if each.writes_usage]
    return [
        OpenMinute(
            minute_us,
            tuple(str(each) for each in writing if each.since_us < minute_us + MINUTE_US),
        )
        for minute_us in moved
    ]


def _open(transaction: dict[str, Any], now_us: int) -> OpenTransaction:
    since_us = int(transaction["started_us"])
    return OpenTransaction(
        transaction["pid"],
        transaction["gid"],
        transaction["user_name"],
        transaction["application_name"] or "",
        since_us,
        max(0, now_us - since_us),
        transaction["writes_usage"],
    )
