"""What an earlier release wrote is still read, and what a later one adds breaks no earlier one.

tests/data/wire_v1.json holds records as they were written when version 1 was fixed. It is never
made again: where a test here fails, the code has left the contract, and a new version is needed.
"""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.contracts import EVENTS, NAMES, contract, problems
from streams.core import fact_codec, mark
from streams.core.envelope import decode
from streams.core.event import Unsupported, Wire
from streams.engine import packed
from streams.engine.errors import UnknownPackedVersion

WRITTEN: Final[dict[str, Any]] = msgspec.json.decode(
    (Path(__file__).parents[1] / "data" / "wire_v1.json").read_bytes()
)
EVENTS_WRITTEN: Final = {each["name"]: each for each in WRITTEN["events"]}
READ_BY_OTHERS: Final = ("accepted", "review", "dead_letter")
KNOWN: Final = {field.name for field in msgspec.structs.fields(Wire)}
ADDED: Final = st.dictionaries(
    st.text(min_size=1, max_size=30).filter(lambda name: name not in KNOWN),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
    min_size=1,
    max_size=4,
)


def seen_as(value: object) -> Any:
    """A value and its type as JSON, bytes in hex."""
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        names = (
            [f.name for f in msgspec.structs.fields(value)]
            if isinstance(value, msgspec.Struct)
            else [f.name for f in fields(value)]
        )
        inner = {name: seen_as(getattr(value, name)) for name in names}
        return {"is": type(value).__name__, **inner}
    if isinstance(value, tuple | list):
        return [seen_as(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    # No JSON number holds a digest.
    return str(value) if isinstance(value, int) and abs(value) >= 1 << 53 else value


def shape(schema: Any, path: str = "$") -> dict[str, Any]:
    """What a contract asks for and allows, by path."""
    found: dict[str, Any] = {}
    if isinstance(schema, dict):
        kept = {k: schema[k] for k in ("required", "enum", "const", "type") if k in schema}
        properties = schema.get("properties")
        if isinstance(properties, dict):
            kept["properties"] = sorted(properties)
        if kept and not path.endswith(".properties"):
            found[path] = kept
        for name, inner in schema.items():
            found |= shape(inner, f"{path}.{name}")
    elif isinstance(schema, list):
        for number, inner in enumerate(schema):
            found |= shape(inner, f"{path}[{number}]")
    return found


def test_every_kind_of_record_was_kept() -> None:
    kinds = {msgspec.json.decode(each["value"])["type"] for each in WRITTEN["events"]}
    assert kinds == set(EVENTS)
    assert {each["contract"] for each in WRITTEN["outputs"]} == set(READ_BY_OTHERS)
    assert {each["seen"]["is"] for each in WRITTEN["facts"]} == {
        kind.__name__ for kind in fact_codec.StoredFact.__args__
    }


@pytest.mark.parametrize("name", EVENTS_WRITTEN)
def test_an_event_of_an_earlier_release_means_what_it_meant(name: str) -> None:
    one = EVENTS_WRITTEN[name]
    assert seen_as(decode(one["key"].encode(), one["value"].encode())) == one["seen"]


@pytest.mark.parametrize("name", EVENTS_WRITTEN)
def test_an_event_of_an_earlier_release_keeps_the_contract_of_this_one(name: str) -> None:
    wire = msgspec.json.decode(EVENTS_WRITTEN[name]["value"])
    assert problems(EVENTS[wire["type"]], wire) == []


@pytest.mark.parametrize("name", EVENTS_WRITTEN)
@given(added=ADDED)
def test_what_a_later_release_adds_changes_nothing_for_this_one(
    name: str, added: dict[str, Any]
) -> None:
    one = EVENTS_WRITTEN[name]
    wire = msgspec.json.decode(one["value"])
    for more in (wire | added, added | wire):
        read = decode(one["key"].encode(), msgspec.json.encode(more))
        assert seen_as(read) == one["seen"]


@pytest.mark.parametrize("name", EVENTS_WRITTEN)
@pytest.mark.parametrize("field", ["v", "content_version"])
def test_what_a_later_release_changes_waits_for_it(name: str, field: str) -> None:
    one = EVENTS_WRITTEN[name]
    wire = msgspec.json.decode(one["value"]) | {field: 2}
    read = decode(one["key"].encode(), msgspec.json.encode(wire))
    assert isinstance(read, Unsupported)
    assert read.version == 2


@pytest.mark.parametrize("one", WRITTEN["outputs"], ids=lambda one: one["contract"])
def test_what_others_read_is_still_what_they_were_promised(one: dict[str, str]) -> None:
    assert problems(one["contract"], msgspec.json.decode(one["value"])) == []


@pytest.mark.parametrize("one", WRITTEN["facts"], ids=lambda one: one["seen"]["is"])
def test_a_fact_on_the_disk_of_an_earlier_release_is_read(one: dict[str, Any]) -> None:
    assert seen_as(fact_codec.decode(bytes.fromhex(one["bytes"]))) == one["seen"]


@pytest.mark.parametrize("one", WRITTEN["packed"])
def test_a_packed_record_of_an_earlier_release_is_read(one: dict[str, Any]) -> None:
    raw = bytes.fromhex(one["bytes"])
    assert seen_as(packed.decode(raw, lambda written: written)) == one["seen"]
    as_written = msgspec.convert(one["seen"]["values"], str)
    marks = [value for _, value in packed.decode(raw, mark.from_version_1).seen()]
    assert "".join(mark.content_of(each).hex() for each in marks) == "".join(
        as_written[at : at + 16] for at in range(0, len(as_written), 2 * mark.MARK_BYTES)
    )
    later = raw[:2] + bytes((packed.VERSION + 1,)) + raw[3:]
    with pytest.raises(UnknownPackedVersion, match="upgrade this worker"):
        packed.decode(later, mark.from_version_1)


@pytest.mark.parametrize("name", ["shared", *NAMES])
def test_a_contract_only_grows(name: str) -> None:
    """Nothing more is asked of producers, nothing is taken from readers."""
    before, now = WRITTEN["contracts"][name], shape(contract(name))
    gone = [path for path in before if path not in now]
    assert not gone, "make a version 2 beside it"
    for path, was in before.items():
        told = now[path]
        assert told.get("const") == was.get("const"), path
        assert told.get("type") == was.get("type"), path
        assert set(told.get("required", ())) == set(was.get("required", ())), path
        for grows in ("properties", "enum"):
            assert set(told.get(grows, ())) >= set(was.get(grows, ())), path
