"""Every page: its links lead somewhere, and what it tells to type or to paste is right."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from streams.cli.main import run
from streams.core.meters_file import parse
from streams.settings import load
from tests.support.documents import ROOT, TRIED_ELSEWHERE, Block, Page, page, pages
from tests.support.kubernetes import name_of, resources
from tests.support.runbooks import PLACEHOLDER

PAGES: Final = pages()
BLOCKS: Final = [
    block for each in PAGES if each.name not in TRIED_ELSEWHERE for block in each.blocks()
]
LANGUAGES: Final = {"", "sh", "sql", "python", "toml", "yaml", "http"}
PATH: Final = re.compile(r"`((?:streams|schemas|connectors|sandbox|tests|deploy|docs)/[\w./-]+)`")
TYPED: Final = sorted(
    {
        line
        for block in BLOCKS
        if block.language in {"", "sh"}
        for line in block.commands
        if line.startswith("tailrace")
    }
)
MENTIONED: Final = sorted(
    {
        " ".join(found.split())
        for each in PAGES
        if not each.name.startswith("docs/reference")
        for found in re.findall(r"`(tailrace [a-z][^`]*)`", each.prose)
    }
)
OTHERS: Final = {"make", ".", "docker", "kubectl", "uv", "python"}
KINDS: Final = {name_of(resource) for resource in resources()}


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def words_of(command: str) -> list[str]:
    """The words of a command that name it, and its options."""
    words = shlex.split(PLACEHOLDER.sub("7", command))[1:]
    named = []
    for word in words:
        if not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        named.append(word)
    return [*named[:2], *(word.split("=")[0] for word in words if word.startswith("--"))]


@pytest.mark.parametrize("each", PAGES, ids=lambda each: each.name)
def test_every_link_leads_somewhere(each: Page) -> None:
    for link in each.links:
        target, _, anchor = link.partition("#")
        if re.match(r"https?:", target):
            continue
        path = ((ROOT / each.name).parent / target).resolve() if target else ROOT / each.name
        assert path.exists(), f"{each.name}: {link}"
        if anchor:
            assert anchor in page(str(path.relative_to(ROOT))).anchors, f"{each.name}: {link}"


@pytest.mark.parametrize("each", PAGES, ids=lambda each: each.name)
def test_every_file_that_a_page_names_is_there(each: Page) -> None:
    named = {found.rstrip("/.") for found in PATH.findall(each.prose)} - TRIED_ELSEWHERE
    absent = {name for name in named if not (ROOT / name).exists()}
    assert not {name for name in absent if not _module(name)}


def _module(name: str) -> bool:
    return (ROOT / f"{name}.py").is_file()


def test_a_page_of_the_documentation_can_be_reached() -> None:
    by_hand = {each.name for each in PAGES if each.name.startswith("docs/")}
    linked = set()
    for each in PAGES:
        for link in each.links:
            target = link.partition("#")[0]
            if target and not target.startswith("http"):
                path = ((ROOT / each.name).parent / target).resolve()
                linked.add(str(path.relative_to(ROOT)))
    left = {n for n in by_hand - linked if not n.startswith("docs/runbooks")} - TRIED_ELSEWHERE
    assert not left - {"docs/README.md"}
    assert "docs/README.md" in linked, "the README leads to the rest"


def test_blocks_are_of_languages_that_somebody_tries() -> None:
    assert {block.language for block in BLOCKS} <= LANGUAGES
    assert all(of(language) for language in LANGUAGES)


@pytest.mark.parametrize("command", [*TYPED, *MENTIONED])
def test_every_command_exists_with_its_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words_of(command)
    names = [word for word in given if not word.startswith("-")]
    code = run([*names, "--help"]) or 0
    if code:  # the second word was an argument
        capsys.readouterr()
        code = run([names[0], "--help"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    for option in given[len(names) :]:
        assert re.search(rf"{option}\b", shown.out), f"{command}: no {option}"


@pytest.mark.parametrize("block", of("", "sh"), ids=lambda block: block.place)
def test_what_is_typed_besides_is_known(block: Block) -> None:
    if not any(line.split()[0] in {*OTHERS, "tailrace"} for line in block.commands):
        assert block.language == "", "a drawing or a signature has no language"
        return
    targets = re.findall(
        r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    for line in block.commands:
        first, *rest = shlex.split(line)
        assert first in {*OTHERS, "tailrace"}, f"{block.place}: {line}"
        if first == "make":
            assert all(word in targets for word in rest if "=" not in word), line
        if first == "kubectl":
            named = [word for word in rest if word.startswith(("statefulset/", "deployment/"))]
            assert set(named) <= KINDS, line


def test_secrets_that_a_page_makes_are_those_that_pods_mount() -> None:
    text = page("docs/deploy.md").text
    made = re.findall(r"create secret generic (\S+) --from-file=tailrace\.toml=(\w+)\.toml", text)
    examples = {path.name.split(".")[0] for path in (ROOT / "deploy/kubernetes").glob("*.toml")}
    assert {name for name, _ in made} == {f"tailrace-{example}" for example in examples}
    assert {file for _, file in made} == examples


@pytest.mark.parametrize("block", of("toml"), ids=lambda block: block.place)
def test_toml_is_a_file_of_ours(block: Block) -> None:
    if "meters" in tomllib.loads(block.text):
        assert parse(block.text).problems == ()
    else:
        load({}, block.text)


@pytest.mark.parametrize("block", of("yaml"), ids=lambda block: block.place)
def test_yaml_is_an_overlay_of_the_base(block: Block) -> None:
    found: dict[str, Any] = yaml.safe_load(block.text)
    assert found["kind"] == "Kustomization"
    base = yaml.safe_load((ROOT / "deploy/kubernetes/kustomization.yaml").read_text("utf-8"))
    (ours,), (theirs,) = found["configMapGenerator"], base["configMapGenerator"]
    assert (ours["name"], ours["behavior"]) == (theirs["name"], "merge")


@pytest.mark.parametrize("block", of("http"), ids=lambda block: block.place)
def test_a_request_is_one_that_the_endpoint_takes(block: Block) -> None:
    head, body = block.text.split("\n\n", 1)
    method, path = head.splitlines()[0].split()
    contract = msgspec.json.decode((ROOT / "schemas/ingest/v1.json").read_bytes())
    content = contract["paths"][path][method.lower()]["requestBody"]["content"]
    (media,) = re.findall(r"^Content-Type: (\S+)$", head, re.MULTILINE)
    schema = content[media]["schema"] | {"components": contract["components"]}
    Draft202012Validator(schema).validate(msgspec.json.decode(body))


@pytest.mark.parametrize("block", of("python"), ids=lambda block: block.place)
def test_python_is_python(block: Block) -> None:
    ast.parse(block.text)


def test_every_drill_and_bug_that_stands_for_a_promise_exists() -> None:
    text = page("docs/guarantees.md").text
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    named = {n for row in rows[2:] for n in re.findall(r"`([a-z0-9-]+)`", row[-2])}
    assert len(named) > 25
    assert named <= drills()


def drills() -> set[str]:
    """The names of all drills; a process of its own, because listing them is a run of pytest."""
    command = [sys.executable, "-m", "streams.cli.main", "drill", "list", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {drill["name"] for drill in msgspec.json.decode(done.stdout)["drills"]}


def test_runbooks_of_alerts_are_named_where_they_are_promised() -> None:
    for name in re.findall(r"`(Usage[A-Z]\w+)`", page("docs/deploy.md").text):
        assert Path(ROOT, "docs", "runbooks", f"{name}.md").is_file()
