"""The properties hold, over drawn logs that crowd around every boundary."""

from collections.abc import Callable

import pytest

from tests.unit.core.properties import PROPERTIES, run


@pytest.mark.parametrize("claim", PROPERTIES, ids=lambda claim: claim.__name__)
def test_of_every_log(claim: Callable[..., None]) -> None:
    run(claim)
