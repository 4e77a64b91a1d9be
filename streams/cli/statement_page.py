"""A statement's document → one page of HTML that stands alone, to print or to keep."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from streams.cli.erasures import mark
from streams.cli.statement_document import AMOUNTS

_STYLE: Final = (
    "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
    "th,td{padding:.2em .6em;text-align:left;border-bottom:1px solid #ccc}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}tr.no{background:#fdd}"
)
_HEADS: Final = ("metric", "window_start", "window_end", "events", *AMOUNTS)
_USAGE: Final = ("event_id", "event_key", "units", "where", "occurred_at", "received_at", "item")
_ENTRY: Final = (
    "kind", "delta", "state", "event_id", "created_at", "customer", "identifier", "actor",
    "reference", "reason",
)  # fmt: skip
_FOOTS: Final = {True: "It foots.", False: "It does NOT foot: the lines marked differ."}


def html_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The page."""
    title = escape(f"Statement of {document['tenant_id']}, {document['month']}")
    yield (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
    )
    payers = ", ".join(dict.fromkeys(line["customer"] for line in document["customers"]))
    by = document["recorded_by"]
    yield f"<p>Billed to {escape(payers) or 'no customer'}; windows that begin in it, UTC.</p>"
    yield (
        f"<p>Recorded: {'the registry of ' + escape(by) if by else 'as the ledger was told'}. "
        f"{_FOOTS[document['foots']]} recorded + corrected + moved = billed + pending + held + "
        "review + rejected + dead + doubtful, in units.</p>"
    )
    for erasure in document["erasures"]:
        yield f"<p>What the service said of its usage was {mark(erasure)}.</p>"
    yield "<h2>By metric</h2>"
    yield from _table(_HEADS, document["metrics"])
    if document["windows"]:
        yield "<h2>By window</h2>"
        yield from _table(_HEADS, document["windows"])
    for line in document["windows"]:
        if "usage" in line:
            yield f"<h3>{escape(line['metric'])} {line['window_start']}</h3>"
            yield from _table(_USAGE, line["usage"])
            yield from _table(_ENTRY, line["entries"])
    yield "</body></html>"


def _table(heads: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    names = "".join(f"<th>{head.replace('_', ' ')}</th>" for head in heads)
    yield f"<table><thead><tr>{names}</tr></thead><tbody>"
    for line in lines:
        cells = "".join(_cell(line[head]) for head in heads)
        yield f"<tr{'' if line.get('foots', True) else ' class=no'}>{cells}</tr>"
    yield "</tbody></table>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    number = text.removeprefix("-").isdigit()
    return f"<td{' class=n' if number else ''}>{escape(text)}</td>"
