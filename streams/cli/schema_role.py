"""A role and a login → what the login lacks to be it; asked with the login's own rights."""

from enum import StrEnum

from schemas.roles import CALLS, Role
from streams.cli.database import Connection, rows


class Wanted(StrEnum):
    """Who a login of the outbox's database is."""

    WRITER = "writer"
    CORRECTOR = "corrector"
    OPS = "ops"

    @property
    def granted(self) -> Role:
        """The role of the database."""
        match self:
            case Wanted.WRITER:
                return "metering_writer"
            case Wanted.CORRECTOR:
                return "metering_corrector"
            case Wanted.OPS:
                return "metering_ops"


def lacking_rights(connection: Connection, role: Wanted) -> list[str]:
    """What is not there, or may not be called, one line each; empty for a login that is let in.

    Raises:
        psycopg.Error: the database went away.
    """
    found = rows(connection, "role_calls", {"signatures": list(CALLS[role.granted])})
    return [
        f"EXECUTE of metering.{each['signature']}"
        if each["present"]
        else f"function metering.{each['signature']}"
        for each in found
        if not each["may"]
    ]
