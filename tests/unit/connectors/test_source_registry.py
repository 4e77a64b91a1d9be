from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.errors import SourceChangedError, SourceUnknownError
from connectors.source_registry import SourceIdentity, expect, register

SHOP = SourceIdentity("shop", "7301", 1)


class Remembered:
    """A store in memory."""

    def __init__(self) -> None:
        self.known: dict[str, SourceIdentity] = {}

    def find(self, source: str) -> SourceIdentity | None:
        return self.known.get(source)

    def add(self, identity: SourceIdentity) -> None:
        self.known.setdefault(identity.source, identity)

    def replace(self, old: SourceIdentity, new: SourceIdentity) -> bool:
        if self.known.get(old.source) != old:
            return False
        self.known[old.source] = new
        return True


def test_a_source_is_new_once() -> None:
    store = Remembered()
    assert register(store, SHOP) is True
    assert register(store, SHOP) is False
    assert expect(store, "shop") == SHOP


@pytest.mark.parametrize(
    "other", [replace(SHOP, system_identifier="7302"), replace(SHOP, timeline=2)]
)
def test_the_name_of_another_cluster_or_timeline_is_refused(
    other: SourceIdentity,
) -> None:
    store = Remembered()
    register(store, SHOP)
    with pytest.raises(SourceChangedError, match="run the repair"):
        register(store, other)
    assert expect(store, "shop") == SHOP


def test_two_registrations_at_once_cannot_both_win() -> None:
    class Late(Remembered):
        def add(self, identity: SourceIdentity) -> None:
            self.known.setdefault(identity.source, replace(identity, system_identifier="9"))

    with pytest.raises(SourceChangedError):
        register(Late(), SHOP)


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(SourceUnknownError, match="register it once"):
        expect(Remembered(), "shop")
