"""Facts at rest: how an unsent fact stands in the state store and in the packed log.

In: a fact, out: bytes tagged with its kind, and back. Only facts with an identity of their own are
stored one by one; levels and cells are readings and live as such.
"""

from typing import Any, Final

import msgspec

from streams.core.fact import CanaryFact, CorrectionFact, EventFact, ParkedFact, Series

StoredFact = EventFact | CorrectionFact | ParkedFact | CanaryFact

_TYPES: Final[dict[str, type[StoredFact]]] = {
    "event": EventFact,
    "correction": CorrectionFact,
    "parked": ParkedFact,
    "canary": CanaryFact,
}
_TAGS: Final = {kind: tag for tag, kind in _TYPES.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, dict[str, Any]])


def encode(fact: StoredFact) -> bytes:
    """The fact as bytes, tagged by its kind."""
    fields: dict[str, Any] = {name: getattr(fact, name) for name in type(fact).__dataclass_fields__}
    if (content := fields.get("content")) is not None:
        fields["content"] = content.to_bytes(16, "big")
    return _ENCODER.encode((_TAGS[type(fact)], fields))


def decode(raw: bytes) -> StoredFact:
    """The fact again.

    Raises:
        msgspec.DecodeError: the bytes are not a stored fact.
        KeyError: a kind that this code does not know; newer code wrote it.
        TypeError: a kind with other fields; another release wrote it. Upgrade the workers.
    """
    tag, fields = _DECODER.decode(raw)
    if (content := fields.get("content")) is not None:
        fields["content"] = int.from_bytes(content, "big")
    if (series := fields.get("series")) is not None:
        fields["series"] = Series(*series)
    return _TYPES[tag](**fields)
