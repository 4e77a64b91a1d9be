"""API keys: a file of hashes → who calls, and for which tenants they may record.

The file holds no key, only SHA-256 of each. A slow hash would protect passwords that people think
of; these are 256 random bits, which nobody can try. It is read again whenever it changes, so a key
is taken back by deleting its lines.
"""

import fcntl
import hashlib
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streams.core.catalogue import PLAIN_NAME

PREFIX: Final = "trk_"
"""So that a key that leaked is found by whoever looks for keys, and masked in our own logs."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MEMBERS: Final = frozenset({"sha256", "tenants"})


class KeysError(Exception):
    """The file of keys cannot be used; its text names each problem.

    Operator: mend the file. Till then calls are answered with 503, and producers try again.
    """


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a key."""

    name: str
    tenants: frozenset[str]


def digest_of(key: str) -> str:
    """What the file holds of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def read(text: str) -> Mapping[str, Holder]:
    """The holders in a file's text, by the hash of their keys.

    Raises:
        KeysError: with every problem.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KeysError(f"is not TOML: {error}") from error
    problems = [
        f"{name}: is not known; keys stand in [keys.NAME]" for name in document.keys() - {"keys"}
    ]
    holders: dict[str, Holder] = {}
    listed = document.get("keys", {})
    if not isinstance(listed, dict):
        raise KeysError("keys: must be tables, [keys.NAME]")
    for name, entry in listed.items():
        found = list(_problems(entry)) if isinstance(entry, dict) else ["must be a table"]
        if PLAIN_NAME.fullmatch(name) is None:
            found.append("its name must be of A-Z a-z 0-9 _ . : - and begin with a letter or digit")
        if not found and entry["sha256"] in holders:
            found.append(f"has the same key as {holders[entry['sha256']].name}")
        problems += [f"keys.{name}: {problem}" for problem in found]
        if not found:
            holders[entry["sha256"]] = Holder(name, frozenset(entry["tenants"]))
    if problems:
        raise KeysError("; ".join(problems))
    return holders


def _problems(entry: Mapping[str, Any]) -> Iterable[str]:
    if not isinstance(entry.get("sha256"), str) or _SHA256.fullmatch(entry["sha256"]) is None:
        yield "sha256 must be the 64 hex digits of a key's hash, never the key"
    tenants = entry.get("tenants")
    if not isinstance(tenants, list) or not tenants or not all(isinstance(t, str) for t in tenants):
        yield "tenants must list the tenants that it may record for"
    yield from (f"{name} is not known" for name in sorted(entry.keys() - _MEMBERS))


class KeysFile:
    """The file, as it is now."""

    def __init__(self, path: Path) -> None:
        """Reads nothing yet."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._holders: Mapping[str, Holder] = {}

    def holder(self, key: str) -> Holder | None:
        """Who has this key; None for nobody.

        Raises:
            KeysError: the file is missing or damaged, so nobody can be told apart.
        """
        return self.holders().get(digest_of(key))

    def holders(self) -> Mapping[str, Holder]:
        """All of them, by the hash of their keys.

        Raises:
            KeysError: the file is missing or damaged.
        """
        try:
            now = self._path.stat()
            seen = (now.st_mtime_ns, now.st_size, now.st_ino)
            if seen != self._seen:
                # Not remembered before it was read whole: a damaged file is not the old one.
                self._seen = None
                self._holders = read(self._path.read_text(encoding="utf-8"))
                self._seen = seen
        except OSError as error:
            raise KeysError(f"{self._path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise KeysError(f"{self._path}: is not UTF-8") from error
        except KeysError as error:
            raise KeysError(f"{self._path}: {error}") from error
        return self._holders


def add(path: Path, name: str, tenants: Iterable[str]) -> str:
    """Makes a key, adds what the file may hold of it, and gives the key: nobody can later.

    Raises:
        KeysError: the name is taken, or what would stand in the file could not be used.
        OSError: the file cannot be written.
    """
    key = PREFIX + secrets.token_urlsafe(32)
    listed = ", ".join(_quoted(tenant) for tenant in tenants)
    lines = f'[keys.{_quoted(name)}]\nsha256 = "{digest_of(key)}"\ntenants = [{listed}]\n'
    path.touch(mode=0o600)
    with path.open("r+", encoding="utf-8") as file:
        # Two that add at a time would both find the name free.
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        text = f"\n{lines}" if before else lines
        if name in {holder.name for holder in read(before).values()}:
            raise KeysError(f"{path}: keys.{name}: is there already; take another name")
        read(before + text)
        file.write(text)
    return key


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    escaped = "".join(
        f"\\u{ord(sign):04x}" if sign < " " or sign in '"\\\x7f' else sign for sign in text
    )
    return f'"{escaped}"'
