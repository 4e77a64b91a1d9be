from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

from schemas.migrations import NAMESPACE, SchemaName, load

SCHEMAS: tuple[SchemaName, ...] = ("outbox", "ledger")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_migrations_are_ordered_and_numbered_once(schema: SchemaName) -> None:
    names = [m.name for m in load(schema)]
    assert names == sorted(names)
    numbers: dict[str, list[int]] = {}
    for migration in load(schema):
        numbers.setdefault(migration.version, []).append(int(migration.name.split("_")[1]))
    for found in numbers.values():
        assert found == sorted(set(found))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_checksum_is_the_files_own(schema: SchemaName) -> None:
    for migration in load(schema):
        raw = files("schemas").joinpath(schema, f"{migration.name}.sql").read_bytes()
        assert migration.sha256 == hashlib.sha256(raw).hexdigest()
        assert migration.sql.encode() == raw
        assert b"\r" not in raw, "a checkout that changes line ends would change the checksum"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_migration_says_what_it_is_for(schema: SchemaName) -> None:
    for migration in load(schema):
        lines = migration.sql.splitlines()
        purpose = lines[0] if migration.transactional else lines[1]
        assert purpose.startswith("-- ")
        assert len(purpose) > 20


def test_only_the_slot_is_made_outside_a_transaction() -> None:
    outside = [m.name for m in load("outbox") if not m.transactional]
    assert outside == ["00.01.00_13_pre_slot"]


def test_writers_are_let_in_last() -> None:
    granting = [m.name for m in load("outbox") if "TO metering_writer" in m.sql]
    assert granting == ["00.01.00_14_pre_grants"]
    before = [m.name for m in load("outbox") if m.name < granting[0]]
    assert before[-2:] == ["00.01.00_12_pre_publication", "00.01.00_13_pre_slot"]


def test_each_schema_has_its_namespace() -> None:
    assert NAMESPACE == {"outbox": "metering", "ledger": "ledger"}
