"""docs/reference: settings, metrics, topics and commands, as the code has them → Markdown."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from streams.adapters.metrics import (
    EXPORTER_METRICS,
    INGEST_METRICS,
    SHARED,
    WORKER_METRICS,
    MetricName,
)
from streams.cli.main import COMMANDS, EXIT_CODES, loaded
from streams.ingest.serve import REQUIRED_BY_INGEST
from streams.settings import PREFIX, REQUIRED_BY_WORKER, Settings
from streams.topics import TOPICS
from streams.webhook import REQUIRED_BY_WEBHOOK
from tests.simulation.invariants import INVARIANTS
from tests.support.markdown import page, table

OF_THE_SANDBOX: Final = ("demo", "sandbox", "stripe-sandbox")
"""Their options are the sandbox package's own; `--help` prints them."""
EVERYWHERE: Final = ("--help", "--dir", "--json")


def settings() -> str:
    """Every setting."""
    rows = []
    for field in fields(Settings):
        default = "" if field.default == "" else f"`{field.default}`"
        secret = "yes" if field.metadata["secret"] else ""
        rows.append((f"`{field.name}`", default, secret, field.metadata["meaning"]))
    return page(
        "Settings",
        "`streams/settings.py`",
        f"`name` is `{PREFIX}NAME` in the environment, or `name` in `tailrace.toml` of the "
        "directory in which a command runs. The environment wins. Values are checked together and "
        "all problems are reported at once, exit 78. A name that is not here is refused. "
        "`tailrace config show` prints what is in force, with secrets masked.",
        table(("setting", "default", "secret", "meaning"), rows),
        f"A worker needs {_listed(REQUIRED_BY_WORKER)}. `tailrace webhook` needs "
        f"{_listed(REQUIRED_BY_WEBHOOK)}. `tailrace ingest` needs {_listed(REQUIRED_BY_INGEST)}.",
    )


def metrics() -> str:
    """Every metric, by who tells it."""
    shared = [metric.name for metric in WORKER_METRICS if metric.name in SHARED]
    return page(
        "Metrics",
        "`streams/adapters/metrics.py`",
        "Names are never renamed; the unit stands last. Each worker and each `tailrace ingest` "
        "serves its own at `metrics_port`, one exporter those that are one for all workers at "
        "`exporter_port`.",
        "## Workers",
        _metrics(WORKER_METRICS),
        "## Exporter",
        _metrics(EXPORTER_METRICS),
        f"It tells these of the workers' too: {_listed(shared)}.",
        "## Ingestion",
        _metrics(INGEST_METRICS),
    )


def _metrics(told: tuple[MetricName, ...]) -> str:
    rows = [(f"`{m.name}`", m.kind, ", ".join(m.labels), m.meaning) for m in told]
    return table(("metric", "kind", "labels", "meaning"), rows)


def topics() -> str:
    """Every topic, with what the broker is told of it."""
    rows = [
        (f"`{t.name}`", f"{t.retention_days} d", f"{t.max_message_bytes >> 20} MiB", t.purpose)
        for t in TOPICS
    ]
    common = sorted(set.intersection(*(set(t.config().items()) for t in TOPICS)))
    return page(
        "Topics",
        "`streams/topics.py`",
        "In the order of the journey. `tailrace topics apply` creates what is missing and sets "
        "what differs; it never changes a partition count. `tailrace topics check` compares.",
        table(("topic", "kept for", "largest record", "what is in it"), rows),
        "All of them have",
        table(("option", "value"), [(f"`{name}`", f"`{value}`") for name, value in common]),
        "and `min.insync.replicas` of one less than `replication`, at least 1.",
    )


def commands() -> str:
    """Every command with its arguments and options."""
    parts = [
        f"`tailrace COMMAND --help` prints the same. {EXIT_CODES} `--dir D` names a sandbox "
        "(else `TAILRACE_DIR`, else `.tailrace/`, else settings alone), and `--json` prints one "
        "document whose schema is in `schemas/cli`; both are left out below.",
    ]
    for name, listed in COMMANDS.items():
        if name in OF_THE_SANDBOX:
            parts += [f"## tailrace {name}", listed.summary]
        else:
            parts += [
                part for path, leaf in leaves(loaded(name), name) for part in _said(path, leaf)
            ]
    return page("Commands", "`streams/cli`", *parts)


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Whatever can be typed below a command, with its words."""
    inner = getattr(command, "commands", {})
    for name, child in inner.items():
        yield from leaves(child, f"{path} {name}")
    if not inner or command.invoke_without_command:
        yield path, command


def _said(path: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [a.name.upper() if a.required else f"[{a.name.upper()}]" for a in arguments]
    yield f"## {' '.join(('tailrace', path, *words))}"
    yield _plain(command.help or "")
    options = [
        (f"`{', '.join((*p.opts, *p.secondary_opts))}`", _plain(p.help or ""))
        for p in command.params
        if p.param_type_name == "option" and not set(p.opts) & set(EVERYWHERE)
    ]
    takes_json = any("--json" in p.opts for p in command.params)
    if options:
        yield table(("option", "meaning"), options)
    if takes_json:
        yield "Takes `--json`."


def invariants() -> str:
    """What must always be true, and what looks for a breach."""
    rows = [
        (
            one.name,
            one.rule,
            _listed(one.checks),
            _listed(one.mutants),
            one.elsewhere,
        )
        for one in INVARIANTS
    ]
    return page(
        "Invariants",
        "`tests/simulation/invariants.py`",
        "What must be true at every step, whatever dies. A check is what the simulation's oracle "
        "calls a breach. A planted bug is a change of the code that breaks the rule: each is put "
        "in, and a run of seeds has to find it.",
        table(("invariant", "rule", "checks", "planted bugs", "looked for elsewhere"), rows),
    )


def _listed(names: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _plain(text: str) -> str:
    """One paragraph a blank line, whatever the code's indentation."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
