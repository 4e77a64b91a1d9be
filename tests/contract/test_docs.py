"""Documentation that is generated says what the code does now."""

from collections.abc import Callable

import pytest

from tests.docs import PAGES, ROOT


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_a_generated_page_is_current(name: str, page: Callable[[], str]) -> None:
    on_disk = (ROOT / name).read_text(encoding="utf-8")
    assert on_disk == page(), "run `python -m tests.docs` and commit what it writes"


def test_no_cell_of_a_table_breaks_it() -> None:
    for page in PAGES.values():
        for table in page().split("\n\n"):
            if table.startswith("|"):
                assert len({line.count("|") for line in table.splitlines()}) == 1
