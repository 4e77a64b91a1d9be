"""A replay → its document, and what people read of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from streams.cli import terminal
from streams.cli.replay_parts import Part, Replayed
from streams.core.trial import NO_FIGURE

SHOWN_MAX: Final = 20


def document_of(replayed: Replayed) -> dict[str, Any]:
    """The JSON document."""
    parts = replayed.parts
    differences = [
        {"partition": part.partition, **difference._asdict()}
        for part in parts
        for difference in (*part.came.compared.differences, *part.readings.differences)
    ]
    return {
        "log_id": replayed.log_id,
        "tenants": None if replayed.wanted.tenants is None else list(replayed.wanted.tenants),
        "partitions": [_part(part) for part in parts],
        "untold": replayed.untold,
        "records": sum(part.came.records for part in parts),
        "equal": sum(part.came.compared.equal + part.readings.equal for part in parts),
        "partly": sum(part.came.compared.partly + part.readings.partly for part in parts),
        "differing": sum(part.came.differing + len(part.readings.differences) for part in parts),
        "differences": differences,
        "figures": _figures(replayed),
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "partition": part.partition,
        "first": part.first,
        "last": part.last,
        "whole": part.whole,
        "records": part.came.records,
        "catalogue_hash": part.told.catalogue.hash.hex(),
    }


def _figures(replayed: Replayed) -> list[dict[str, Any]]:
    """By meter and verdict; with other rules, what they make of the same records."""
    mine = replayed.figures(other=False)
    asked = replayed.wanted.other is not None
    others = replayed.figures(other=True) if asked else {}
    return [
        {
            "metric": name[0],
            "verdict": name[1],
            "events": mine.get(name, NO_FIGURE).events,
            "units": str(mine.get(name, NO_FIGURE).units),
            "other_events": others.get(name, NO_FIGURE).events if asked else None,
            "other_units": str(others.get(name, NO_FIGURE).units) if asked else None,
        }
        for name in sorted({*mine, *others})
    ]


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Figures, then what differs, then the verdict."""
    if document["figures"]:
        heads = ["metric", "verdict", "events", "units"]
        if document["figures"][0]["other_units"] is not None:
            heads += ["other_events", "other_units"]
        yield from terminal.table(
            heads, [[figure[head] for head in heads] for figure in document["figures"]]
        )
        yield ""
    for difference in document["differences"][:SHOWN_MAX]:
        yield (
            f"{difference['kind']} {difference['subject']}: replayed {difference['replayed']}; "
            f"the ledger has {difference['ledger']}"
        )
    if document["differing"] > SHOWN_MAX:
        yield f"and {document['differing'] - SHOWN_MAX} more: see `--json`"
    yield (
        f"{document['records']} records, {document['differing']} differences, "
        f"{document['equal']} readings and verdicts equal"
    )


def remarks(document: Mapping[str, Any], seconds: float) -> Iterator[str]:
    """How fast it was, and what was not compared."""
    if document["records"] and seconds > 0:
        yield f"{document['records'] / seconds:.0f} records a second"
    if document["partly"]:
        yield f"{document['partly']} readings were read in part only, and are not compared"
    if document["untold"]:
        yield f"the ledger was told nothing of partitions {', '.join(map(str, document['untold']))}"
    if document["differing"]:
        yield (
            "a topic that was made anew lacks what its first one held, and a part of a log lacks "
            "what came before it; else `tailrace audit` names the events"
        )
