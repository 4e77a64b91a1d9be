"""Reads docker-compose.yml, as far as that file uses YAML: mappings, lists, scalars, JSON lists."""

from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Line:
    """One line that says something."""

    number: int
    indent: int
    text: str


def read(text: str) -> dict[str, Any]:
    """The content as values; scalars stay text.

    Raises:
        ValueError: A line uses YAML that this reader does not know.
    """
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if stripped and not stripped.startswith("#"):
            lines.append(Line(number, len(raw) - len(raw.lstrip()), stripped))
    value, rest = _block(lines, 0)
    if rest or not isinstance(value, dict):
        raise ValueError(f"line {rest[0].number if rest else 1}: not understood")
    return value


def _block(lines: list[Line], indent: int) -> tuple[Any, list[Line]]:
    if lines[0].text.startswith("- "):
        return _list(lines, indent)
    values: dict[str, Any] = {}
    while lines and lines[0].indent == indent:
        line, lines = lines[0], lines[1:]
        name, colon, scalar = line.text.partition(":")
        if not colon or name in values:
            raise ValueError(f"line {line.number}: expected a new `name: value`")
        if scalar.strip():
            values[name] = _scalar(scalar.strip())
        elif lines and lines[0].indent > indent:
            values[name], lines = _block(lines, lines[0].indent)
        else:
            values[name] = None
    return values, lines


def _list(lines: list[Line], indent: int) -> tuple[list[Any], list[Line]]:
    values = []
    while lines and lines[0].indent == indent and lines[0].text.startswith("- "):
        values.append(_scalar(lines[0].text[2:].strip()))
        lines = lines[1:]
    return values, lines


def _scalar(text: str) -> Any:
    if text.startswith(("[", '"')):
        return msgspec.json.decode(text)
    if text.startswith(("{", "&", "*", "|", ">", "'")):
        raise ValueError(f"{text}: more YAML than this reader knows")
    return text
