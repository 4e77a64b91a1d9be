from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.catalog import build_from_file, describe
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres


def test_the_schema_in_one_file_equals_the_sum_of_the_migrations(
    fresh_database: Callable[..., Database],
) -> None:
    migrated, built = fresh_database("ledger"), fresh_database()
    with migrated.connect() as one, built.connect() as other:
        build_from_file(other, "ledger", {})

        assert describe(one, "ledger") == describe(other, "ledger")
