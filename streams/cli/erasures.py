"""Rows of the ledger's erasures → a line and a document of each."""

from typing import Any

from streams.core.instant import wire_text


def receipt_text(erasure: dict[str, Any]) -> str:
    """One erasure in a line."""
    return (
        f"erased on {wire_text(erasure['erased_us'])} (receipt {erasure['receipt']}) by "
        f"{erasure['actor']}: {erasure['reason']}"
    )


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
