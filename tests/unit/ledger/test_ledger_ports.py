from __future__ import annotations

import inspect

import pytest

from streams.adapters.ledger import Ledger
from streams.ports import AttemptLedger, FactsLedger


def both(ledger: Ledger) -> tuple[FactsLedger, AttemptLedger]:
    """Checked by the type checker: one ledger serves admission and publishing."""
    return ledger, ledger


@pytest.mark.parametrize("port", [FactsLedger, AttemptLedger])
def test_the_ledger_has_the_methods_of_its_ports_with_the_same_arguments(port: type) -> None:
    for name in dir(port):
        if not name.startswith("_"):
            theirs = inspect.signature(getattr(port, name)).parameters
            assert list(inspect.signature(getattr(Ledger, name)).parameters) == list(theirs)
