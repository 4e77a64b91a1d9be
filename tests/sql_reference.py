"""docs/reference/sql.md: what people and services may call and read, from schema.sql → Markdown.

schema.sql is the sum of the migrations (a test compares them), so it is what an installation has.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.markdown import page, table

SCHEMAS: Final = Path(__file__).parents[1] / "schemas"
CALLERS: Final = {
    "outbox": ("metering_writer", "metering_corrector", "metering_ops", "metering_eraser"),
    "ledger": ("ledger_finance", "ledger_eraser"),
}
"""Roles that services and people have. What the others call is part of something else."""
READ: Final = (
    ("balance", "one row a tenant, metric and window: what was used, decided, and where it stands"),
    ("meter_log", "entries: signed amounts in the meter's units, never changed, never removed"),
    ("meter_event", "frozen requests to Stripe; only the state of their settlement moves"),
    ("parked", "what waited or waits for a person, with its reason, and how it ended"),
)
"""Of the ledger, what is promised to stay as it is or to grow."""
_FUNCTION: Final = re.compile(
    r"(?P<above>(?:^--[^\n]*\n)*)^CREATE FUNCTION (?P<name>[\w.]+)\((?P<arguments>.*?)\)\s*"
    r"(?:RETURNS (?P<returns>.*?)\s+)?LANGUAGE",
    re.MULTILINE | re.DOTALL,
)
_GRANT: Final = re.compile(r"GRANT EXECUTE ON FUNCTION\s+(.*?)\s+TO ([\w, ]+);", re.DOTALL)
_COMMENT: Final = re.compile(
    r"COMMENT ON (?:FUNCTION|VIEW) ([\w.]+)(?:\([^)]*\))? IS\s+'((?:[^']|'')*)'", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Function:
    """One that somebody may call."""

    name: str
    arguments: str
    returns: str
    about: str
    callers: tuple[str, ...]


def functions(schema: str) -> Iterator[Function]:
    """What the callers of a schema may call, in the order of its file."""
    text = (SCHEMAS / schema / "schema.sql").read_text(encoding="utf-8")
    callers: dict[str, set[str]] = defaultdict(set)
    for called, roles in _GRANT.findall(text):
        for name in re.findall(r"([\w.]+)\(", called):
            callers[name] |= {role.strip() for role in roles.split(",")}
    comments = {name: about.replace("''", "'") for name, about in _COMMENT.findall(text)}
    for found in _FUNCTION.finditer(text):
        name = found["name"]
        allowed = tuple(role for role in CALLERS[schema] if role in callers[name])
        about = comments.get(name) or _above(found["above"])
        if allowed and about:  # what says nothing of itself is part of another
            arguments, outs = _parted(found["arguments"])
            returns = " ".join((found["returns"] or f"record ({outs})").split())
            yield Function(name, arguments, returns, about, allowed)


def _parted(arguments: str) -> tuple[str, str]:
    """What goes in, and what comes out by name."""
    text = " ".join(arguments.split())
    into, _, out = text.partition("OUT ")
    return into.rstrip(" ,"), out.replace("OUT ", "")


def _above(comment: str) -> str:
    return " ".join(line.removeprefix("--").strip() for line in comment.splitlines())


def sql() -> str:
    """The page."""
    return page(
        "SQL",
        "`schemas/outbox/schema.sql` and `schemas/ledger/schema.sql`",
        "Functions that people and services may call, with the roles that may. What workers and "
        "commands call besides is left out; a name that ends in `_v1` may get a second version.",
        "## The service's database",
        *_described(functions("outbox")),
        "## The ledger",
        "Everything can be read with the role `ledger_reader`. These are promised:",
        table(("name", "what it holds"), [(f"`ledger.{name}`", about) for name, about in READ]),
        *_described(functions("ledger")),
    )


def _described(found: Iterable[Function]) -> Iterator[str]:
    for one in found:
        yield f"### {one.name}"
        yield f"```\n{one.name}({one.arguments})\n  → {one.returns}\n```"
        about = "\n\n".join(one.about.splitlines())
        yield f"{about}\n\nMay be called by: {', '.join(f'`{role}`' for role in one.callers)}."
