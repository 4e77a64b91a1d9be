from __future__ import annotations

import inspect

import pytest

from streams.adapters.ledger import Ledger
from streams.ports import FactsLedger, LaneLedger


def both(ledger: Ledger) -> tuple[FactsLedger, LaneLedger]:
    """Checked by the type checker: one ledger serves admission and publishing."""
    return ledger, ledger


@pytest.mark.parametrize("port", [FactsLedger, LaneLedger])
def test_the_ledger_has_the_methods_of_its_ports_with_the_same_arguments(port: type) -> None:
    for name, method in vars(port).items():
        if not name.startswith("_"):
            theirs = inspect.signature(method).parameters
            assert list(inspect.signature(getattr(Ledger, name)).parameters) == list(theirs)
