"""The house's own rules that no linter knows; each failure says what to do."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("schemas", "connectors", "streams", "sandbox")
CORE: Final = ROOT / "streams/core"
MODULES: Final = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
TESTS: Final = sorted((ROOT / "tests").rglob("*.py"))
SQL: Final = sorted(path for name in (*PACKAGES, "tests") for path in (ROOT / name).rglob("*.sql"))
LINES_MAX: Final = 300
GENERIC: Final = {"utils", "util", "helpers", "helper", "manager", "common", "base", "misc"}
VALUES: Final = {"__init__", "catalogue", "decided", "event", "instant"}
"""Core modules that are words, not steps: nothing goes in or out."""
UNFINISHED: Final = re.compile(r"\b(?:FIX" r"ME|TO" r"DO|XX" r"X|HA" r"CK)\b")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_reading_list_names_every_core_module_once() -> None:
    listed = re.findall(r"^`(\w+)`: \S", docstring(CORE / "__init__.py"), re.MULTILINE)
    present = {path.stem for path in CORE.glob("*.py")} - {"__init__"}
    assert sorted(listed) == sorted(present), "one line a module in streams/core/__init__.py"


def test_no_module_is_longer_than_a_reader_keeps_in_mind() -> None:
    long = [f"{name_of(path)}: {n}" for path in MODULES if (n := lines(path)) > LINES_MAX]
    assert not long, f"split along its nouns, at most {LINES_MAX} lines: {long}"


def test_every_module_opens_with_what_it_is() -> None:
    silent = [name_of(path) for path in MODULES if not docstring(path)]
    assert not silent, f"begin with a docstring: {silent}"


def test_a_hop_says_what_comes_in_and_what_goes_out() -> None:
    vague = [
        name_of(path)
        for path in MODULES
        if docstring(path).startswith("Hop") and "→" not in docstring(path).split("\n\n")[0]
    ]
    assert not vague, f"open with `Hop N: what comes in → what goes out`: {vague}"


def test_a_core_module_says_what_comes_in_and_what_goes_out() -> None:
    steps = [path for path in CORE.glob("*.py") if path.stem not in VALUES]
    vague = [
        name_of(path)
        for path in steps
        if "→" not in (text := docstring(path)) and not ("In:" in text and "ut:" in text)
    ]
    assert not vague, f"say `in → out`, or In: and Out:, in the docstring: {vague}"


def test_nothing_is_left_for_later() -> None:
    found = [
        f"{name_of(path)}:{number}"
        for path in (*MODULES, *TESTS, *SQL)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not found, f"finish it or file an issue: {found}"


def test_names_are_nouns_of_the_journey() -> None:
    found = [
        name_of(path)
        for path in (*MODULES, *TESTS)
        if GENERIC & {path.stem, *path.relative_to(ROOT).parent.parts}
    ]
    assert not found, f"name the noun that the module is about: {found}"


def test_imports_are_absolute() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in (*MODULES, *TESTS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not found, f"import from the package's full name: {found}"


def literals() -> tuple[set[str], list[re.Pattern[str]]]:
    """Every text in the code, and every f-string as a pattern of its fixed parts."""
    nodes = [
        node
        for path in (*MODULES, *TESTS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    patterns = {
        "".join(
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"(\w+)"
            for part in node.values
        )
        for node in nodes
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant)
    }
    return texts, [re.compile(pattern) for pattern in patterns]


def test_every_named_query_is_asked_for() -> None:
    texts, patterns = literals()

    def asked(name: str) -> bool:
        found = (pattern.fullmatch(name) for pattern in patterns)
        return name in texts or any(m and m.groups() and set(m.groups()) <= texts for m in found)

    names = re.compile(r"^-- name:[ \t]*(\S+)", re.MULTILINE)
    unused = [
        f"{name_of(path)}: {name}"
        for path in SQL
        for name in names.findall(path.read_text(encoding="utf-8"))
        if not asked(name)
    ]
    assert not unused, f"delete it, or ask for it by its name: {unused}"


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_every_folder_with_code_is_a_package(package: str) -> None:
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    bare = [name_of(folder) for folder in folders if not (folder / "__init__.py").exists()]
    assert not bare, f"add an __init__.py: {bare}"
