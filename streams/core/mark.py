"""A first copy and its verdict → the mark of its identity: 17 bytes that a copy is compared with.

In: a content digest, a verdict's class, an offset. Out: 17 bytes, and each of them back.
Half the content digest tells a copy from a conflict; the class of its verdict and the offset of
its first copy are there for the merge of two owners and for whoever traces an event. What is alike
in many marks comes first: there it lies beside what the state store puts between two ids, and one
run of equal bytes compresses better than two.
"""

from struct import Struct
from typing import Final

_MARK: Final = Struct(">cQ8s")
MARK_BYTES: Final = _MARK.size
_CODES: Final = {
    "accepted": b"a", "review": b"r", "dead": b"d",
    "correction": b"x", "canary": b"y", "conflict": b"c",
}  # fmt: skip


def encode_mark(content: bytes, verdict_class: str, offset: int) -> bytes:
    """The mark of an identity whose first copy, at `offset`, got a verdict of this class."""
    return _MARK.pack(_CODES[verdict_class], offset, content)


def from_version_1(mark: bytes) -> bytes:
    """A mark as packed records of version 1 have it, with the content first, as it is now."""
    return mark[8:] + mark[:8]


def content_of(mark: bytes) -> bytes:
    """The half of the content digest that is remembered."""
    return mark[9:]


def same_content(mark: bytes, content: bytes) -> bool:
    """Whether a record of the identity says what its first copy said."""
    return mark[9:] == content[:8]


def earlier(left: bytes, right: bytes) -> bytes:
    """Of two marks of one id in one log, the one of the first copy."""
    return right if right[1:9] < left[1:9] else left
