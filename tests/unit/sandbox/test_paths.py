import stat
from pathlib import Path

import pytest

from sandbox.paths import Paths, find_paths, read_json, write_json
from sandbox.secrets import Secrets, load_or_make, same
from streams.cli.errors import ConfigurationError


@pytest.mark.parametrize(
    ("option", "environ", "found"),
    [
        (None, {}, "/srv/app/.tailrace"),
        (None, {"TAILRACE_DIR": "box"}, "/srv/app/box"),
        (None, {"TAILRACE_DIR": "/srv/box"}, "/srv/box"),
        (None, {"TAILRACE_DIR": ""}, "/srv/app/.tailrace"),
        (Path("mine"), {"TAILRACE_DIR": "/srv/box"}, "/srv/app/mine"),
        (Path("/srv/mine"), {}, "/srv/mine"),
    ],
)
def test_the_option_goes_before_the_variable_before_the_default(
    option: Path | None, environ: dict[str, str], found: str
) -> None:
    assert find_paths(option, environ, Path("/srv/app")).dir == Path(found)


@pytest.mark.parametrize(
    ("option", "environ", "typed"),
    [
        (None, {}, "tailrace sandbox down"),
        (None, {"TAILRACE_DIR": "box"}, "tailrace sandbox down"),
        (Path("box"), {}, "tailrace sandbox down --dir box"),
    ],
)
def test_a_command_is_named_as_this_person_has_to_type_it(
    option: Path | None, environ: dict[str, str], typed: str
) -> None:
    assert find_paths(option, environ, Path("/srv/app")).command("down") == typed


@pytest.mark.parametrize("name", ["run/wanted.json", "ports.json"])
def test_a_file_edited_into_nonsense_is_named_with_the_way_out(tmp_path: Path, name: str) -> None:
    Paths(tmp_path).make()
    file = tmp_path / name
    file.write_text("{")
    with pytest.raises(ConfigurationError, match=rf"{file.name}: is damaged") as caught:
        read_json(file)
    assert f"`tailrace sandbox down --dir {tmp_path}`" in caught.value.fix


def test_a_written_file_is_for_its_owner_only_and_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "value.json"
    write_json(file, {"a": 1})
    write_json(file, {"a": 2})
    assert read_json(file) == {"a": 2}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_value_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "value.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    assert read_json(file) == {"a": 1}
    assert list(tmp_path.iterdir()) == [file]


def test_no_file_is_no_value(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none.json") is None


def test_passwords_are_made_once_and_differ(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    made = load_or_make(file)
    assert load_or_make(file) == made
    assert len({made.superuser, made.writer, made.cdc, made.ops, made.ledger}) == 5


def test_one_password_for_all_must_not_be_empty() -> None:
    assert same("x") == Secrets("x", "x", "x", "x", "x")
    with pytest.raises(ConfigurationError, match="SANDBOX_PASSWORD"):
        same("")
