"""docs/reference/records.md: what stands in each record, from the JSON Schemas of the wire."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from schemas.contracts import EVENTS, contract
from streams.topics import ACCEPTED, DEAD_LETTER, REVIEW
from tests.support.markdown import page, table

Schema = Mapping[str, Any]
OUTPUTS: Final = {ACCEPTED: "accepted", REVIEW: "review", DEAD_LETTER: "dead_letter"}


def records() -> str:
    """The page."""
    return page(
        "Records",
        "the JSON Schemas in `schemas/`",
        "What stands in the topics, in JSON. All of it is version 1 (`v`). A reader skips members "
        "that it does not know: a later release may add some. It takes nothing away and gives no "
        "member another meaning; that would be a version 2. The schemas refuse unknown members, so "
        "that a test of yours finds a misspelt one.",
        "## usage.events",
        "As the outbox writes them. `type` says which.",
        *(part for name in EVENTS.values() for part in _described(contract(name), "###")),
        *(
            part
            for topic, name in OUTPUTS.items()
            for part in (f"## {topic}", *_described(contract(name), "###"))
        ),
    )


def _described(schema: Schema, heading: str) -> Iterator[str]:
    yield f"{heading} {schema['title']}"
    if "description" in schema:
        yield schema["description"]
    variants = [each for each in schema.get("oneOf", ()) if "title" in each]
    if variants:
        for variant in variants:
            yield from _described(variant, f"{heading}#")
        return
    needed = _required(schema)
    rows = [
        (f"`{name}`", "" if name in needed else "may be absent", _meaning(member))
        for name, member in _members(schema).items()
    ]
    yield table(("member", "", "meaning"), rows)


def _members(schema: Schema) -> dict[str, Schema]:
    """Its own members and those of what it is made of; its own say more."""
    found: dict[str, Schema] = {}
    for part in (*schema.get("allOf", ()), *schema.get("oneOf", ())):
        found |= _members(_resolved(part))
    for name, member in schema.get("properties", {}).items():
        found[name] = {**_resolved(found.get(name, {})), **member}
    return found


def _required(schema: Schema) -> set[str]:
    parts = (_required(_resolved(part)) for part in schema.get("allOf", ()))
    return set(schema.get("required", ())).union(*parts)


def _resolved(schema: Schema) -> Schema:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    # Only what several have in common refers to itself.
    name, _, pointer = reference.removeprefix("urn:tailrace:").rpartition(":v1")
    found = contract(name or "shared")
    for step in pointer.removeprefix("#").strip("/").split("/"):
        found = found[step] if step else found
    return {**found, **{key: value for key, value in schema.items() if key != "$ref"}}


def _meaning(member: Schema) -> str:
    """What its schema says of it, in words where there are some."""
    whole = _resolved(member)
    words = [whole["description"]] if "description" in whole else []
    if "const" in whole:
        words.append(f"Always `{whole['const']}`.")
    elif "enum" in whole:
        words.append("One of " + ", ".join(f"`{each}`" for each in whole["enum"]) + ".")
    elif "type" in whole and not words:
        kinds = whole["type"] if isinstance(whole["type"], list) else [whole["type"]]
        words.append(" or ".join(kinds))
    return " ".join(words)
