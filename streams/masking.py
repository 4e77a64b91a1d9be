"""Text and fields that may hold secrets → the same without them, by name and by shape.

By name, because a password has no shape; by shape, because an error text has no names. What is
masked keeps its kind, so that whoever reads it knows which secret was there.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from traceback import format_exception
from typing import Any, Final

MASK: Final = "***"

_NAMED: Final = re.compile(
    r"passw(?:or)?d|secret|api_?key|token|authorization|jaas|dsn|private_?key|credential",
    re.IGNORECASE,
)
_QUOTED: Final = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# Without what may stand before it: the search for that reads a long word again from each letter.
_NAME: Final = r"(?:passw(?:or)?d|secret(?:_?access_?key)?|session_?token|api_?key)"
_SHAPES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # Stripe's keys and signing secrets.
    (re.compile(r"\b((?:sk|rk|ek)_(?:live|test)_)[A-Za-z0-9]{3,}"), rf"\1{MASK}"),
    (re.compile(r"\b(whsec_)[A-Za-z0-9+/=_-]{3,}"), rf"\1{MASK}"),
    # API keys of `tailrace ingest`.
    (re.compile(r"\b(trk_)[A-Za-z0-9_-]{16,}"), rf"\1{MASK}"),
    # user:password@host of any address; a password may hold `/` where nobody quoted it.
    (re.compile(r"([a-z0-9+.-]://[^\s:/@]*:)[^\s@]+@", re.IGNORECASE), rf"\1{MASK}@"),
    # The same where somebody left the scheme out.
    (re.compile(r"([\w.-]:)[^\s@:/]+(@[\w.\[-])"), rf"\1{MASK}\2"),
    # name=value and "name": "value", as in DSNs, librdkafka's and Java's options, headers; after a
    # bare colon only what ends the line or the item, for else it is a sentence about the name.
    (
        re.compile(
            rf"""({_NAME}["']?\s*=\s*|{_NAME}["']\s*:\s*)(?:{_QUOTED}|[^\s"',;)}}]+)""",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            rf"""({_NAME}:\s*)(?:{_QUOTED}|[^\s"',;)}}]+)(?=\s*(?:$|[,;)}}]))""",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b((?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1{MASK}"),
)


def masked(text: str) -> str:
    """The text without what looks like a secret."""
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


def masked_value(value: Any, name: str = "") -> Any:
    """A field's value: whole behind a name that says secret, else by its shape, to any depth."""
    if value and isinstance(value, str | bytes) and _NAMED.search(name):
        return MASK
    match value:
        case str():
            return masked(value)
        case bytes():
            return masked(value.decode(errors="replace"))
        case Mapping():
            return {key: masked_value(each, str(key)) for key, each in value.items()}
        case Sequence() | set() | frozenset():
            return [masked_value(each, name) for each in value]
        case BaseException():
            return masked(f"{type(value).__name__}: {value}")
        case _:
            return value


def mask_fields(_logger: Any, _method: str, fields: Any) -> Any:
    """As a processor of structlog, behind the one that renders exceptions."""
    return {name: masked_value(value, name) for name, value in fields.items()}


def mask_libraries() -> None:
    """Has what libraries log masked too, whoever sets up their handlers, and whenever."""
    made = logging.getLogRecordFactory()
    if not isinstance(made, _Masking):
        logging.setLogRecordFactory(_Masking(made))


class _Masking:
    """Makes log records whose text holds no secret any more."""

    def __init__(self, made: Callable[..., logging.LogRecord]) -> None:
        self._made = made

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._made(*args, **kwargs)
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # text and arguments do not fit: the handler says so
            return record
        record.msg, record.args = masked(text), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = masked("".join(format_exception(record.exc_info[1]))).rstrip()
        return record
