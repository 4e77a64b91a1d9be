"""A statement's document → tables for people, CSV for spreadsheets, and what to do about it."""

import csv
import io
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from streams.cli import terminal
from streams.cli.erasures import mark
from streams.cli.statement_document import AMOUNTS

Document = Mapping[str, Any]

LINE: Final = ("metric", "window_start", "window_end", "events", *AMOUNTS, "missing", "proven")
_DETAIL: Final = (
    "what", "id", "event_key", "units", "state", "at", "customer", "identifier", "who", "why",
)  # fmt: skip


def text_lines(document: Document) -> Iterator[str]:
    """Metrics, then windows, then what is in each."""
    heads: tuple[str, ...] = ("metric", "events", *AMOUNTS, "foots")
    yield f"{document['tenant_id']}  {document['month']}  {_payers(document)}"
    yield ""
    yield from terminal.table(
        heads, ([_cell(line, head) for head in heads] for line in document["metrics"])
    )
    if not document["windows"]:
        return
    heads = ("metric", "window_start", "events", *AMOUNTS, "foots")
    yield ""
    yield from terminal.table(
        heads, ([_cell(line, head) for head in heads] for line in document["windows"])
    )
    for line in document["windows"]:
        if details := list(_details(line)):
            yield ""
            yield f"{line['metric']} {line['window_start']}"
            yield from terminal.table(_DETAIL, details)


def csv_lines(document: Document) -> Iterator[str]:
    """One row a window, or one an event and entry where these are asked for."""
    if document["down_to"] == "event":
        yield _csv(("metric", "window_start", "window_end", *_DETAIL))
        for line in document["windows"]:
            for detail in _details(line):
                yield _csv((line["metric"], line["window_start"], line["window_end"], *detail))
        return
    yield _csv((*LINE, "foots"))
    for line in document["metrics" if document["down_to"] == "metric" else "windows"]:
        yield _csv([_cell(line, head) for head in (*LINE, "foots")])


def remarks(document: Document) -> Iterator[str]:
    """What a reader should know, and what to type about what does not foot."""
    if document["registry_unread"]:
        yield (
            f"recorded: as the ledger was told, without ids of windows that add up, because "
            f"{document['registry_unread']}"
        )
    for erasure in document["erasures"]:
        yield f"what the service said of its usage was {mark(erasure)}: {erasure['reason']}"
    if not document["metrics"]:
        yield f"nothing was recorded for {document['tenant_id']} in {document['month']}"
    wrong = [line for line in document["windows"] if not line["foots"]]
    for line in wrong[:SHOWN_MAX]:
        yield f"{line['metric']} {line['window_start']}: {_wrong(line)}"
    if wrong:
        yield (
            "what was received a moment ago is still under way: repeat; else `tailrace audit` "
            "names what is lost or made up, `tailrace windows show "
            f"{shlex.quote(document['tenant_id'])} {shlex.quote(wrong[0]['metric'])} "
            f"{wrong[0]['window_start']}` what the ledger has"
        )


SHOWN_MAX: Final = 10


def _wrong(line: Document) -> str:
    parts = []
    if line["difference"] != "0":
        parts.append(f"{line['difference']} units recorded are nowhere")
    if line["missing"]:
        parts.append(f"{line['missing']} events recorded are nowhere")
    if line["proven"] is False:
        parts.append("the ledger counted other events than these")
    if line["newest_received_at"]:
        parts.append(f"the newest was received at {line['newest_received_at']}")
    return ", ".join(parts)


def _payers(document: Document) -> str:
    names = list(dict.fromkeys(line["customer"] for line in document["customers"]))
    return ", ".join(names) or "no customer is mapped"


def _cell(line: Document, head: str) -> object:
    value = line[head]
    if isinstance(value, bool) or (value is None and head == "proven"):
        return {True: "yes", False: "NO", None: "not read"}[value]
    return value


def _details(line: Document) -> Iterator[Sequence[object]]:
    for event in line.get("usage", ()):
        item = event["item"]
        why = "" if item is None else f"item {item}"
        yield (
            "event", event["event_id"], event["event_key"], event["units"], event["where"],
            event["occurred_at"], "", "", "", why,
        )  # fmt: skip
    for entry in line.get("entries", ()):
        why = "; ".join(filter(None, (entry["reference"], entry["reason"])))
        yield (
            f"{entry['kind']} entry", entry["event_id"] or entry["entry_id"], "", entry["delta"],
            entry["state"], entry["created_at"], entry["customer"], entry["identifier"],
            "" if entry["kind"] in {"usage", "event"} else entry["actor"], why,
        )  # fmt: skip


def _csv(cells: Iterable[object]) -> str:
    held = io.StringIO()
    csv.writer(held, lineterminator="").writerow([_harmless(cell) for cell in cells])
    return held.getvalue()


def _harmless(cell: object) -> object:
    """A spreadsheet would calculate what begins so; event keys come from anybody."""
    if not isinstance(cell, str) or cell.removeprefix("-").isdigit():
        return cell
    return f"'{cell}" if cell[:1] in {"=", "+", "-", "@", "\t", "\r"} else cell
