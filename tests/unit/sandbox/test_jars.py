import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox import connect, jars, kafka

GOOD = b"a jar"
DIGEST = hashlib.sha256(GOOD).hexdigest()
LOCK = f"# a comment\n{DIGEST}  kafka/one.jar\n{DIGEST}  plugins/p/two.jar\n"


def resolver(content: bytes, *, names: tuple[str, ...]) -> Callable[[Path], None]:
    def resolve(target: Path) -> None:
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content)

    return resolve


ALL = resolver(GOOD, names=("kafka/one.jar", "plugins/p/two.jar", "plugins/p/unwanted.jar"))


def quiet(text: str) -> None:
    assert text


def refuse_to_resolve(target: Path) -> None:
    raise AssertionError(f"asked to fill {target}")


def test_the_first_run_fetches_and_later_runs_do_not(tmp_path: Path) -> None:
    said: list[str] = []
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    found = jars.ensure(environ, lock_text=LOCK, resolve=ALL, say=said.append)
    assert (found.kafka / "one.jar").read_bytes() == GOOD
    assert [file.name for file in (found.plugins / "p").iterdir()] == ["two.jar"]
    assert len(said) == 1
    again = jars.ensure(environ, lock_text=LOCK, resolve=refuse_to_resolve, say=said.append)
    assert again == found
    assert len(said) == 1


def test_another_lock_has_another_folder(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    one = jars.ensure(environ, lock_text=LOCK, resolve=ALL, say=quiet)
    other = jars.ensure(environ, lock_text=LOCK + "\n", resolve=ALL, say=quiet)
    assert one.root != other.root


def test_a_fetched_file_with_a_bad_checksum_is_named_and_not_used(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    forged = resolver(b"forged", names=("kafka/one.jar", "plugins/p/two.jar"))
    with pytest.raises(jars.JarsError) as refused:
        jars.ensure(environ, lock_text=LOCK, resolve=forged, say=quiet)
    text = str(refused.value)
    assert "one.jar" in text
    assert f"expected sha256 {DIGEST}" in text
    assert f"got {hashlib.sha256(b'forged').hexdigest()}" in text
    assert "Nothing of it was used" in text
    assert jars.cached(environ, LOCK) is None


def test_a_cached_file_that_was_changed_is_named_and_not_used(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    found = jars.ensure(environ, lock_text=LOCK, resolve=ALL, say=quiet)
    (found.kafka / "one.jar").write_bytes(b"changed")
    with pytest.raises(jars.JarsError, match=r"one\.jar: expected sha256 .*, got"):
        jars.ensure(environ, lock_text=LOCK, resolve=refuse_to_resolve, say=quiet)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    half = resolver(GOOD, names=("kafka/one.jar",))
    with pytest.raises(jars.JarsError, match=r"two\.jar: missing"):
        jars.ensure({"XDG_CACHE_HOME": str(tmp_path)}, lock_text=LOCK, resolve=half, say=quiet)


def test_a_fetch_that_fails_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    def fail(target: Path) -> None:
        ALL(target)
        raise jars.JarsError("Maven ended with 1")

    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    with pytest.raises(jars.JarsError, match="Maven ended"):
        jars.ensure(environ, lock_text=LOCK, resolve=fail, say=quiet)
    assert jars.cached(environ, LOCK) is None


def test_the_cache_is_under_home_unless_xdg_says_otherwise() -> None:
    assert jars.cache_dir({"HOME": "/srv/ada"}) == Path("/srv/ada/.cache/tailrace/jars")
    assert jars.cache_dir({"HOME": "/h", "XDG_CACHE_HOME": "/x"}) == Path("/x/tailrace/jars")


@pytest.mark.parametrize("line", ["abc  kafka/one.jar", DIGEST, f"{DIGEST} kafka/one.jar"])
def test_a_malformed_lock_names_its_line(line: str) -> None:
    with pytest.raises(jars.JarsError, match="line 2"):
        jars.parse_lock(f"# first\n{line}\n")


def test_the_lock_and_the_poms_name_the_versions_the_code_names() -> None:
    names = jars.parse_lock(jars.LOCK_FILE.read_text(encoding="ascii"))
    assert f"kafka/kafka-clients-{kafka.VERSION}.jar" in names
    assert f"kafka/connect-runtime-{connect.VERSION}.jar" in names
    plugin = f"plugins/{connect.PLUGIN}/"
    assert f"{plugin}{connect.PLUGIN}-{connect.DEBEZIUM_VERSION}.jar" in names
    debezium = [name for name in names if name.startswith(f"{plugin}debezium-")]
    assert all(name.endswith(f"-{connect.DEBEZIUM_VERSION}.jar") for name in debezium)
    assert len(debezium) == 7
    poms = "".join(pom.read_text(encoding="utf-8") for pom in jars.POMS.values())
    assert f"<kafka.version>{kafka.VERSION}<" in poms
    assert f"<debezium.version>{connect.DEBEZIUM_VERSION}<" in poms


def test_the_plugin_folder_shadows_nothing_of_kafkas_class_path() -> None:
    names = [Path(name) for name in jars.parse_lock(jars.LOCK_FILE.read_text(encoding="ascii"))]
    kafkas = {name.name for name in names if name.parts[0] == "kafka"}
    plugins = {name.name for name in names if name.parts[0] == "plugins"}
    assert not kafkas & plugins


def test_a_relocked_folder_leaves_out_what_would_shadow(tmp_path: Path) -> None:
    plugin = f"plugins/{connect.PLUGIN}"
    names = ("kafka/a.jar", f"{plugin}/debezium-x.jar", f"{plugin}/jackson-core.jar")
    resolver(GOOD, names=names)(tmp_path)
    wanted = jars.parse_lock(jars.make_lock(tmp_path))
    assert wanted == {"kafka/a.jar": DIGEST, f"{plugin}/debezium-x.jar": DIGEST}
