"""Rows of the ledger's erasures → a line and a document of each."""

from collections.abc import Mapping
from typing import Any

from streams.core.instant import wire_text


def mark(document: Mapping[str, Any]) -> str:
    """What the databases say in place of what was erased, from an erasure's document."""
    return f"erased on {document['erased_at']} (receipt {document['receipt']})"


def receipt_text(erasure: dict[str, Any]) -> str:
    """One erasure in a line."""
    return f"{mark(receipt_document(erasure))} by {erasure['actor']}: {erasure['reason']}"


def receipt_document(erasure: dict[str, Any]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "receipt": erasure["receipt"],
        "erased_at": wire_text(erasure["erased_us"]),
        "actor": erasure["actor"],
        "reason": erasure["reason"],
        **{
            name: int(erasure[name])
            for name in ("records", "record_bytes", "entries", "source_rows")
        },
    }
