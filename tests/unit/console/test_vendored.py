"""What others wrote and we ship: each file is the one that its manifest names, with its licence."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

import streams.console

STATIC: Final = Path(streams.console.__file__).parent / "static"
TEMPLATES: Final = STATIC.parent / "templates"
VENDOR: Final = STATIC / "vendor"


class Vendored(msgspec.Struct):
    file: str
    package: str
    version: str
    registry: str
    path: str
    sha256: str
    license: str
    license_file: str
    license_sha256: str


class Manifest(msgspec.Struct):
    files: list[Vendored]


MANIFEST: Final = msgspec.json.decode((VENDOR / "manifest.json").read_bytes(), type=Manifest)


def digest(name: str) -> str:
    return hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()


def test_every_vendored_file_is_the_one_that_was_taken() -> None:
    for each in MANIFEST.files:
        assert digest(each.file) == each.sha256, f"{each.file} is not that of {each.version}"
        assert digest(each.license_file) == each.license_sha256


def test_the_manifest_names_every_file() -> None:
    named = {name for each in MANIFEST.files for name in (each.file, each.license_file)}
    assert {path.name for path in VENDOR.iterdir()} == named | {"manifest.json"}


def test_pages_ask_for_nothing_elsewhere_and_hold_no_script_or_style_of_their_own() -> None:
    for template in TEMPLATES.glob("*.html"):
        text = template.read_text(encoding="utf-8")
        assert "http://" not in text.replace("http://www.w3.org", ""), template.name
        assert "https://" not in text, template.name
        for inline in ("<style", " style=", " onclick=", " onload=", "javascript:", "hx-on"):
            assert inline not in text, f"{template.name}: {inline}"
        for line in text.splitlines():
            assert "<script" not in line or 'src="/static/' in line, template.name


def test_every_form_that_changes_something_carries_its_token() -> None:
    for template in TEMPLATES.glob("*.html"):
        text = template.read_text(encoding="utf-8")
        for form in text.split('<form method="post"')[1:]:
            body = form.partition("</form>")[0]
            assert (
                "forms.hidden(operator" in body
                or "operator.form_token" in body
                or 'action="/sign-in"' in body
            ), template.name
