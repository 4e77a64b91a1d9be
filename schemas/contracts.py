"""JSON Schemas of the wire: name of a record type → the contract, or a validator of it.

For tests, tools and other languages; the workers' hot path decodes by type instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from schemas.errors import ContractMissingError

#: Records of usage.events by the `type` they carry.
EVENTS: Final[Mapping[str, str]] = {
    "usage": "usage_event",
    "conflict": "conflict",
    "correction": "correction",
    "canary": "canary",
}

#: Every contract; `meters` is the form of meters.toml.
NAMES: Final = (
    *EVENTS.values(),
    "accepted",
    "review",
    "dead_letter",
    "meters",
)


@cache
def contract(name: str, version: int = 1) -> Mapping[str, Any]:
    """The JSON Schema of a record type.

    Args:
        name: one of `NAMES`, or `shared` for the definitions that several have in common.
        version: the `v` that the record carries.

    Raises:
        ContractMissingError: there is no such contract in this release.
    """
    file = "meters.schema.json" if name == "meters" else f"{name}/v{version}.json"
    path = files("schemas").joinpath(file)
    if not path.is_file():
        raise ContractMissingError(f"schemas/{file}: not in this release; known are {NAMES}")
    loaded: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return loaded


@cache
def validator(name: str, version: int = 1) -> Draft202012Validator:
    """A validator of one record type, with every reference between contracts resolved.

    Raises:
        ContractMissingError: there is no such contract in this release.
    """
    known = [contract(other) for other in ("shared", *NAMES)]
    registry: Registry[Any] = Registry().with_resources(
        (str(one["$id"]), Resource.from_contents(one)) for one in known
    )
    return Draft202012Validator(contract(name, version), registry=registry)


def problems(name: str, record: object) -> list[str]:
    """Every rule a record breaks, as `path: rule`, in the order of the paths; empty when none."""
    found = validator(name).iter_errors(record)
    return sorted(f"{error.json_path}: {error.message}" for error in found)
