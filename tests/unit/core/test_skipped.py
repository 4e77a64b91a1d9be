"""What a skipped record says of itself, and which of the missing it explains."""

import pytest

from streams.core.audit import NOTHING, Judgment, Tally
from streams.core.audit_names import Identity
from streams.core.skipped import (
    Missing,
    Said,
    explained,
    meant,
    say,
    state_of,
    without_skipped_copies,
)

ID = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = "11234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            b'{"v": 9, "event_id": "%s", "tenant_id": "acme", "event_key": "k", "new": [1]}'
            % ID.upper().encode(),
            Said(ID, "acme", "k"),
        ),
        (b'{"tenant_id": "acme"}', Said(None, "acme")),
        (b"{}", Said()),
        (b'{"event_id": 7}', Said()),
        (b'{"event_id": "me"}', Said()),
        (b"[]", Said()),
        (b"{", Said()),
        (b"\xff", Said()),
        (b"", Said()),
        (None, Said()),
    ],
)
def test_a_record_says_what_it_can(record: bytes | None, said: Said) -> None:
    assert say(record) == said


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        (Said(), ["k", "l"]),
        (Said(ID), ["k"]),
        (Said(OTHER, "acme", "k"), []),
        (Said(None, "acme", "l"), ["l"]),
        (Said(None, "globex"), []),
        (Said(None, None, "k"), ["k"]),
    ],
)
def test_a_person_means_what_agrees_with_every_name(said: Said, keys: list[str]) -> None:
    missing = [
        Missing(0, Identity(ID, "usage", "acme", "k", 1)),
        Missing(1, Identity(OTHER, "usage", "acme", "l", 2)),
    ]
    assert [each.identity.event_key for each in meant(missing, said)] == keys


@pytest.mark.parametrize(
    ("decided", "parked", "passed", "state"),
    [
        (False, False, False, "held"),
        (False, True, True, "held"),
        (True, True, True, "done"),
        (True, False, True, "contradicted"),
        (True, False, False, "skipped"),
    ],
)
def test_how_far_a_held_record_has_come(
    decided: bool, parked: bool, passed: bool, state: str
) -> None:
    assert state_of(decided=decided, parked=parked, passed=passed) == state


def test_only_what_names_itself_explains_and_only_itself() -> None:
    missing = [Identity(ID, "usage", "acme", "k", 1), Identity(OTHER, "usage", "acme", "l", 2)]
    assert explained(missing, [Said(ID, "acme", "k")]) == (missing[0],)
    assert explained(missing, [Said(None, "acme", "k"), Said()]) == ()
    assert explained(missing, []) == ()


FIRST, SECOND = Identity(ID, "usage", "acme", "k", 1), Identity(OTHER, "usage", "acme", "l", 2)
BOTH = Tally(2, 3)


def judged(verdict: str, cells: Tally) -> Judgment:
    return Judgment(0, "usage", verdict, BOTH, cells, BOTH)  # type: ignore[arg-type]  # of a table


@pytest.mark.parametrize(
    ("cells", "skipped", "copies"),
    [
        (Tally(3, 4), [Said(ID)], (FIRST,)),
        (Tally(3, 4), [Said(OTHER), Said(ID), Said()], (FIRST,)),
        (Tally(4, 5), [Said(ID), Said(ID)], (FIRST, FIRST)),
        (Tally(3, 4), [Said(OTHER)], ()),
        (Tally(3, 4), [Said("31234567-89ab-cdef-0123-456789abcdef")], ()),
        (Tally(3, 9), [Said(ID), Said(OTHER)], ()),
    ],
)
def test_a_skipped_copy_is_no_verdict_and_any_other_surplus_stays_one(
    cells: Tally, skipped: list[Said], copies: tuple[Identity, ...]
) -> None:
    before = judged("phantom", cells)
    after, whose = without_skipped_copies(before, [FIRST, SECOND], skipped)
    assert whose == copies
    assert after == (judged("equal", BOTH) if copies else before)


def test_the_only_copy_of_an_identity_keeps_its_verdict_when_it_is_skipped() -> None:
    equal = judged("equal", BOTH)
    assert without_skipped_copies(equal, [FIRST, SECOND], [Said(ID)]) == (equal, ())
    lost = judged("lost", NOTHING)
    assert without_skipped_copies(lost, [FIRST, SECOND], [Said(ID)]) == (lost, ())
