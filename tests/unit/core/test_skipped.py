"""What a skipped record says of itself, and which of the missing it explains."""

import pytest

from streams.core.audit_names import Identity
from streams.core.skipped import Said, explained, say

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


def test_only_what_names_itself_explains_and_only_itself() -> None:
    missing = [Identity(ID, "usage", "acme", "k", 1), Identity(OTHER, "usage", "acme", "l", 2)]
    assert explained(missing, [Said(ID, "acme", "k")]) == (missing[0],)
    assert explained(missing, [Said(None, "acme", "k"), Said()]) == ()
    assert explained(missing, []) == ()
