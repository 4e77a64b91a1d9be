"""API keys: only hashes are kept, each for its tenants."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streams.ingest.keys import Holder, KeysError, KeysFile, add, digest_of, read
from streams.masking import masked

HASH = "a" * 64


def test_a_key_is_shown_once_and_its_hash_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = add(file, "shop", ["acme", 'with "quotes" and \\'])
    assert key not in file.read_text()
    assert digest_of(key) in file.read_text()
    assert KeysFile(file).holder(key) == Holder("shop", frozenset({"acme", 'with "quotes" and \\'}))
    assert KeysFile(file).holder(key + "x") is None
    assert KeysFile(file).holder(digest_of(key)) is None, "the hash itself opens nothing"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_key_in_a_log_is_masked(tmp_path: Path) -> None:
    key = add(tmp_path / "keys.toml", "shop", ["acme"])
    assert masked(f"called with {key}.") == "called with trk_***."


def test_no_two_keys_are_the_same_and_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: add(file, f"shop{n}", ["acme"]), range(24)))
    assert len(set(made)) == 24
    keys = KeysFile(file)
    assert [keys.holder(key) for key in made] == [
        Holder(f"shop{n}", frozenset({"acme"})) for n in range(24)
    ]


def test_a_name_is_taken_once_and_the_file_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    add(file, "shop", ["acme"])
    before = file.read_text()
    for name in ("shop", "two words", ""):
        with pytest.raises(KeysError, match=r"is there already|its name must be"):
            add(file, name, ["acme"])
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "is not TOML"),
        ("keys = 3", "must be tables"),
        ("other = 3", "other: is not known"),
        ("[keys]\nshop = 3", "keys.shop: must be a table"),
        ("[keys.shop]\ntenants = ['acme']", "sha256 must be"),
        (f"[keys.shop]\nsha256 = '{HASH.upper()}'\ntenants = ['acme']", "sha256 must be"),
        (f"[keys.shop]\nsha256 = '{HASH}'", "tenants must list"),
        (f"[keys.shop]\nsha256 = '{HASH}'\ntenants = []", "tenants must list"),
        (f"[keys.shop]\nsha256 = '{HASH}'\ntenants = 'acme'", "tenants must list"),
        (f"[keys.shop]\nsha256 = '{HASH}'\ntenants = ['a']\nkey = 'x'", "key is not known"),
        (
            f"[keys.a]\nsha256 = '{HASH}'\ntenants = ['a']\n"
            f"[keys.b]\nsha256 = '{HASH}'\ntenants = ['b']",
            "keys.b: has the same key as a",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, problem: str) -> None:
    with pytest.raises(KeysError, match=problem):
        read(text)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(KeysError) as refused:
        read("surprise = 1\n[keys.a]\n[keys.b]\nsha256 = 'x'\ntenants = ['a']")
    assert str(refused.value).count("keys.a: ") == 2
    assert str(refused.value).count("keys.b: ") == 1
    assert "surprise: " in str(refused.value)


def test_a_file_that_is_mended_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = add(file, "shop", ["acme"])
    good, keys = file.read_text(), KeysFile(file)
    assert keys.holder(key) is not None
    for text in ("[keys", None, "\udcff"):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_bytes(text.encode(errors="surrogateescape"))
        for _ in range(2):
            with pytest.raises(KeysError, match=str(file)):
                keys.holder(key)
    file.write_text(good)
    assert keys.holder(key) is not None
