"""Which stack a command talks to: option, environment, files → one `Stack`.

Found by `--dir D`, else TAILRACE_DIR, else `.tailrace/` here: `sandbox.json` there gives the
addresses. Explicit settings (environment over `tailrace.toml`) win over it, one by one, and are
named; without a sandbox they stand alone.
"""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import environ as process_environment
from pathlib import Path
from typing import Any, Final

import msgspec

from streams.cli.directory import find_directory
from streams.cli.errors import ConfigurationError
from streams.settings import FILE_NAME, PREFIX, Settings, load, read_file

SANDBOX_FILE: Final = "sandbox.json"
SANDBOX_CLOCK: Final = "clock"
NAMED: Final = 3
"""So many settings stand in a note by name."""
STAND_IN_KEY: Final = "sk_test_sandbox"

_ADDRESSES: Final = {
    "kafka_bootstrap": "KAFKA_BOOTSTRAP",
    "ledger_dsn": "LEDGER_DSN",
    "postgres_dsn": "SOURCE_DSN",
    "writer_dsn": "INGEST_DSN",
    "connect_url": "CONNECT_URL",
    "stripe_url": "STRIPE_API_BASE",
}
"""Keys of sandbox.json and the settings they give."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What a command talks to.

    `directory` is the sandbox's, None where settings stand alone. `overridden` names the explicit
    settings that replace an address of the sandbox.
    """

    settings: Settings
    directory: Path | None
    facts: Mapping[str, Any]
    overridden: tuple[str, ...]

    @property
    def is_sandbox(self) -> bool:
        """Whether a sandbox was found."""
        return self.directory is not None

    @property
    def has_own_clock(self) -> bool:
        """Whether its parts run on a clock that the sandbox shifts."""
        return self.directory is not None and (self.directory / SANDBOX_CLOCK).exists()

    def admin_dsn(self, schema: str) -> str:
        """The superuser's way into a sandbox's database, else the one the settings know."""
        key, setting = {
            "outbox": ("postgres_dsn", self.settings.source_dsn),
            "ledger": ("ledger_owner_dsn", self.settings.ledger_dsn),
        }[schema]
        explicit = f"{PREFIX}{'SOURCE' if schema == 'outbox' else 'LEDGER'}_DSN"
        if explicit in self.overridden:
            return setting
        return str(self.facts.get(key) or setting)

    def need(self, *names: str) -> Settings:
        """The settings, all of these set.

        Raises:
            ConfigurationError: naming every one that is missing.
        """
        missing = [f"{PREFIX}{name.upper()}" for name in names if not getattr(self.settings, name)]
        if missing:
            where = (
                f"{self.directory}/{SANDBOX_FILE}" if self.directory else "no sandbox found, and"
            )
            raise ConfigurationError(
                f"{where} {', '.join(missing)} not set",
                fix="`tailrace sandbox up` for a stack on this computer, or set what is named",
            )
        return self.settings


def listed_workers(facts: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The workers that a sandbox says it runs; nothing else lists its own."""
    found: Sequence[Mapping[str, Any]] = facts.get("pids", {}).get("workers", ())
    return found


def find_stack(option: Path | None, environment: Mapping[str, str], working_dir: Path) -> Stack:
    """Resolves the stack.

    Args:
        option: what `--dir` says.
        environment: usually the process's.
        working_dir: where relative paths and `tailrace.toml` are.

    Raises:
        ConfigurationError: a sandbox was named and is not there, or its file is damaged.
        UsageProblemError: the option names a file.
        SettingsError: with every problem of the settings.
    """
    directory, facts = _find_sandbox(option, environment, working_dir)
    file_text = read_file(working_dir)
    given = _sandbox_settings(facts) if directory else {}
    explicit = set(environment) | _file_settings(file_text)
    overridden = tuple(sorted(name for name in given if name in explicit))
    merged = {name: value for name, value in given.items() if name not in explicit}
    settings = load({**merged, **environment}, file_text)
    return Stack(settings, directory, facts, overridden)


def resolve(option: Path | None, *, live: bool = False) -> Stack:
    """The stack of this very process: its environment and its working directory.

    Args:
        option: what `--dir` says.
        live: whether `--live` was typed: a live key of Stripe's is meant.
    """
    meant = {f"{PREFIX}LIVE": "1"} if live else {}
    stack = find_stack(option, {**process_environment, **meant}, Path.cwd())
    if stack.overridden:
        sys.stderr.write(
            f"note: {overridden_text(stack.overridden)} instead of what {stack.directory} says\n"
        )
    return stack


def overridden_text(names: Sequence[str]) -> str:
    """The settings by name; of many the first, for who exports a sandbox's all has them all."""
    more = len(names) - NAMED
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {more} more"


def _find_sandbox(
    option: Path | None, environment: Mapping[str, str], working_dir: Path
) -> tuple[Path | None, Mapping[str, Any]]:
    directory, named = find_directory(option, environment, working_dir)
    path = directory / SANDBOX_FILE
    try:
        return directory, msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        if not named:
            return None, {}
        raise ConfigurationError(
            f"{directory}: no {SANDBOX_FILE}, so no sandbox runs there",
            fix=f"`tailrace sandbox up{f' {named}' if option else ''}`",
        ) from None
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error}",
            fix=f"`tailrace sandbox down --dir {directory}`, then `up` again",
        ) from error


def _sandbox_settings(facts: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a sandbox: what it lists itself, over what its addresses say."""
    given = {f"{PREFIX}REPLICATION": "1", f"{PREFIX}STRIPE_API_KEY": STAND_IN_KEY}
    for key, setting in _ADDRESSES.items():
        if isinstance(facts.get(key), str):
            given[f"{PREFIX}{setting}"] = facts[key]
    listed = facts.get("settings")
    if isinstance(listed, dict):
        given.update({str(name): str(value) for name, value in listed.items()})
    return given


def _file_settings(text: str | None) -> set[str]:
    try:
        document = tomllib.loads(text or "")
    except tomllib.TOMLDecodeError:
        return set()  # `load` reports it with every other problem of the settings
    return {f"{PREFIX}{name.upper()}" for name in document}


__all__ = ["FILE_NAME", "Stack", "find_stack", "resolve"]
