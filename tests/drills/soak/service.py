"""The service whose usage is billed: it records at a steady pace, and again what a crash left open.

It cannot know whether a commit that broke off was executed, so it does what a service does: the
same call with the same key. What it has recorded is noted in the books, and nothing else is.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import psycopg

from tests.support.books import Books, Use, record
from tests.support.live import LiveStack
from tests.support.waiting import until

PAUSE_S: Final = 0.25


class Held:
    """A transaction that stays open, with usage that nobody can see yet."""

    def __init__(self, connection: psycopg.Connection, uses: list[Use]) -> None:
        self.connection = connection
        self.uses = uses


class Recorder:
    """One connection of the service, made anew when it breaks."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.broken_off = 0
        """Calls without an answer."""
        self._connection: psycopg.Connection | None = None

    def recorded(self, use: Use) -> bool:
        """Records; False where the answer did not come, whatever was done."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self.dsn, autocommit=True, connect_timeout=5)
            record(self._connection, use)
        except psycopg.OperationalError:
            self.broken_off += 1
            self.close()
            return False
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Service:
    """Records usage on a thread of its own."""

    def __init__(self, stack: LiveStack, books: Books, uses: Iterator[Use], per_s: float) -> None:
        """Starts to record.

        Args:
            stack: whose Postgres.
            books: where it is noted.
            uses: everything it has to record.
            per_s: so many a second, until it has to hurry.
        """
        self._books = books
        self._uses = uses
        self._per_s = per_s
        self._hurry = threading.Event()
        self._over = threading.Event()
        self.noting = threading.Lock()
        """Held by whoever writes or reads the books before `finish`."""
        dsn = str(stack.facts["writer_dsn"])
        self._own, self._beside = Recorder(dsn), Recorder(dsn)
        self._thread = threading.Thread(target=self._work, name="service", daemon=True)
        self._thread.start()

    @property
    def broken_off(self) -> int:
        """Calls without an answer, which were made again."""
        return self._own.broken_off + self._beside.broken_off

    def finish(self, deadline_s: float) -> None:
        """Records the rest without a pause; blocks until it is recorded.

        Raises:
            AssertionError: it is not, in time.
        """
        self._hurry.set()
        self._thread.join(deadline_s)
        assert not self._thread.is_alive(), f"the service has not come to its end in {deadline_s} s"

    def end(self) -> None:
        """Gives up what is not recorded yet."""
        self._over.set()
        self._hurry.set()
        self._thread.join(30)
        self._own.close()
        self._beside.close()

    def hold(self, uses: list[Use]) -> Held:
        """Records in a transaction that stays open.

        Raises:
            psycopg.OperationalError: the database is away.
        """
        connection = psycopg.connect(self._own.dsn, connect_timeout=5)
        try:
            connection.execute("SELECT")  # begins it, so that recording does not commit
            for use in uses:
                record(connection, use)
        except psycopg.OperationalError:
            connection.close()
            raise
        return Held(connection, uses)

    def release(self, held: Held, *, commit: bool) -> None:
        """Ends a held transaction; one that was to be committed and broke off is recorded anew."""
        try:
            if commit:
                held.connection.commit()
            else:
                held.connection.rollback()
        except psycopg.OperationalError:
            for use in held.uses if commit else ():
                until("usage to be recorded again", partial(self._beside.recorded, use), 120)
        finally:
            held.connection.close()
        for use in held.uses:
            self._note(use if commit else replace(use, fate="rollback"))

    def _work(self) -> None:
        began_s = time.monotonic()
        for number, use in enumerate(self._uses):
            early_s = number / self._per_s - (time.monotonic() - began_s)
            if early_s > 0:
                self._hurry.wait(early_s)
            while not self._own.recorded(use):
                if self._over.wait(PAUSE_S):
                    return
            self._note(use)
            if self._over.is_set():
                return

    def _note(self, use: Use) -> None:
        with self.noting:
            self._books.note(use)
