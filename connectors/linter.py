"""Refuses unsafe options before they reach Connect: a flat config → what is wrong, and the fix.

Pure. Three questions: is each option one we know, with a value judged safe (`lint`); do the options
fit each other (`lint`); are the installed plugins versions that do not lose rows (`lint_plugins`).
"""

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from connectors import names
from connectors.connect_answers import Plugin
from connectors.rules import FORBIDDEN, RULES, Rule

OLDEST_SAFE = (3, 7, 0)
"""Debezium below this loses committed rows at a graceful restart, and rows of a COPY."""

_RULES = {rule.option: rule for rule in RULES}
_OUTAGE_HIDDEN_MS_MAX = 300_000
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)\.(\w+)")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a config or with the installed plugins."""

    option: str
    """The option at fault, or the plugin's class."""
    rule: str
    """What must hold, and what happens otherwise."""
    fix: str
    """What to do."""

    def __str__(self) -> str:
        """One line for an operator."""
        return f"{self.option}: {self.rule}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What the linter cannot see in the config itself."""

    topics: frozenset[str] = frozenset()
    """Topics known to exist; heartbeats and transaction metadata need theirs."""
    private_hosts: frozenset[str] = frozenset()
    """Database hosts reachable over a private network only, beside loopback addresses."""


_NOTHING_KNOWN = Scope()


def lint(config: Mapping[str, str], scope: Scope = _NOTHING_KNOWN) -> list[Finding]:
    """Everything that is wrong with a connector config; empty when it may be sent.

    Args:
        config: the flat map as it would be sent, placeholders unresolved.
        scope: what is known beside the config.
    """
    found = [finding for name in sorted(config) for finding in _judge(name, config[name])]
    found += [_missing(rule) for rule in RULES if rule.required and rule.option not in config]
    for check in CROSS_CHECKS:
        found += check(config, scope)
    return found


def lint_plugins(plugins: Iterable[Plugin]) -> list[Finding]:
    """What is wrong with the plugins of a Connect worker; empty when rows are safe with them."""
    installed = list(plugins)
    found: list[Finding] = []
    for wanted in (names.CONNECTOR_CLASS, names.ROUTER_CLASS):
        versions = sorted({plugin.version for plugin in installed if plugin.class_name == wanted})
        found += _judge_versions(wanted, versions)
    ours = {
        plugin.version
        for plugin in installed
        if plugin.class_name in (names.CONNECTOR_CLASS, names.ROUTER_CLASS)
    }
    if len(ours) > 1:
        found.append(
            Finding(
                names.CONNECTOR_CLASS,
                f"one version only, but {', '.join(sorted(ours))} are installed: jars of several "
                "versions in one folder fail in ways no test has seen",
                "leave one version in the plugin folder and restart the worker",
            )
        )
    return found


def _judge(name: str, value: str) -> list[Finding]:
    rule = _RULES.get(name)
    if rule is not None:
        return [] if rule.accepts(value) else [_broken(rule, value)]
    for forbidden in FORBIDDEN:
        if forbidden.covers(name):
            return [Finding(name, f"must not be set: {forbidden.why}", f"remove {name}")]
    near = difflib.get_close_matches(name, _RULES, n=1)
    hint = f"did you mean {near[0]}? else remove it" if near else "remove it"
    rule_text = "unknown option: Connect would accept it and it would do nothing, or harm"
    return [Finding(name, rule_text, hint)]


def _broken(rule: Rule, value: str) -> Finding:
    shown = "a literal" if rule.secret else repr(value)
    return Finding(
        rule.option, f"is {shown}, must be {rule.must}: {rule.why}", f"set it to {rule.must}"
    )


def _missing(rule: Rule) -> Finding:
    return Finding(
        rule.option, f"is not set, must be {rule.must}: {rule.why}", f"set it to {rule.must}"
    )


def _judge_versions(wanted: str, versions: list[str]) -> list[Finding]:
    if not versions:
        return [
            Finding(wanted, "not installed", "put Debezium's jars, all of one version, in place")
        ]
    return [
        Finding(
            wanted,
            f"version {version} is not a final release from {_text(OLDEST_SAFE)} on: older ones "
            "lose committed rows when a worker is stopped gracefully",
            f"install {_text(OLDEST_SAFE)}.Final, all jars of one version",
        )
        for version in versions
        if not _safe(version)
    ]


def _safe(version: str) -> bool:
    parts = _VERSION.fullmatch(version)
    if parts is None or parts[4] != "Final":
        return False
    return tuple(int(part) for part in parts.groups()[:3]) >= OLDEST_SAFE


def _text(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _number(config: Mapping[str, str], name: str) -> int | None:
    value = config.get(name, "")
    return int(value) if re.fullmatch(r"\d{1,18}", value) else None


def _check_predicate(config: Mapping[str, str], _scope: Scope) -> list[Finding]:
    """The predicate matches rows of the outbox, and nothing else of this source."""
    option = "predicates.isOutbox.pattern"
    prefix, pattern = config.get("topic.prefix"), config.get(option)
    if prefix is None or pattern is None:
        return []
    wanted = re.escape(names.outbox_record_topic(prefix))
    if pattern == wanted:
        return []
    return [
        Finding(
            option,
            f"is {pattern!r}, which is not exactly the outbox of {prefix}: outbox rows could pass "
            "by the router, or foreign ones meet it",
            f"set it to {wanted}",
        )
    ]


def _check_heartbeat(config: Mapping[str, str], scope: Scope) -> list[Finding]:
    """Heartbeats have their topic, move the slot, and their messages stay in the database."""
    option = "heartbeat.interval.ms"
    if not _number(config, option):
        return []
    prefix = config.get("heartbeat.topics.prefix", "__debezium-heartbeat")
    found = _needs_topic(option, f"{prefix}.{config.get('topic.prefix', '')}", scope)
    for companion in ("heartbeat.action.query", "message.prefix.exclude.list"):
        if companion not in config:
            found.append(
                Finding(
                    option,
                    f"on, without {companion}: heartbeats alone do not move a slot when only other "
                    "tables are written",
                    f"set {companion}, or {option} to 0 and rely on canary rows",
                )
            )
    return found


def _check_transaction_metadata(config: Mapping[str, str], scope: Scope) -> list[Finding]:
    """Transaction metadata has its topic."""
    option = "provide.transaction.metadata"
    if config.get(option) != "true":
        return []
    return _needs_topic(option, f"{config.get('topic.prefix', '')}.transaction", scope)


def _needs_topic(option: str, topic: str, scope: Scope) -> list[Finding]:
    if topic in scope.topics:
        return []
    return [
        Finding(
            option,
            f"on, but topic {topic} is not known to exist: the first rows would pass and then "
            "none, with everything RUNNING",
            f"create {topic} first, or switch {option} off",
        )
    ]


def _check_encryption(config: Mapping[str, str], scope: Scope) -> list[Finding]:
    """A database across a network is reached under TLS, and known by its certificate."""
    option = "database.sslmode"
    mode, host = config.get(option), config.get("database.hostname", "")
    if mode not in ("disable", "require") or host in scope.private_hosts or _is_loopback(host):
        return []
    return [
        Finding(
            option,
            f"is {mode} for {host}: anyone on the way can read usage, or pose as the database",
            "set it to verify-full and give database.sslrootcert",
        )
    ]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_queue(config: Mapping[str, str], _scope: Scope) -> list[Finding]:
    """The queue holds more than one batch; Debezium refuses to start otherwise."""
    queue, batch = _number(config, "max.queue.size"), _number(config, "max.batch.size")
    if queue is None or batch is None or queue > batch:
        return []
    return [
        Finding(
            "max.queue.size",
            f"is {queue}, must be greater than max.batch.size, {batch}",
            f"set it to {4 * batch}",
        )
    ]


def _check_patience(config: Mapping[str, str], _scope: Scope) -> list[Finding]:
    """An outage turns into FAILED within minutes, where it is seen and healed with a guard."""
    option = "errors.max.retries"
    retries, wait_ms = (
        _number(config, option),
        _number(config, "retriable.restart.connector.wait.ms"),
    )
    if retries is None or wait_ms is None or retries * wait_ms <= _OUTAGE_HIDDEN_MS_MAX:
        return []
    return [
        Finding(
            option,
            f"times retriable.restart.connector.wait.ms is {retries * wait_ms // 1000} s: Connect "
            "would say RUNNING through an outage of that length",
            f"keep the product within {_OUTAGE_HIDDEN_MS_MAX // 1000} s",
        )
    ]


CROSS_CHECKS: tuple[Callable[[Mapping[str, str], Scope], list[Finding]], ...] = (
    _check_predicate,
    _check_heartbeat,
    _check_transaction_metadata,
    _check_encryption,
    _check_queue,
    _check_patience,
)
"""Rules that look at several options at once."""
