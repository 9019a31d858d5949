"""What a release is told apart by is in one place, and the pages and the package agree with it."""

from __future__ import annotations

import re

import chai
from tests.conftest import ROOT

PROJECT = (ROOT / "pyproject.toml").read_text()
NOX = (ROOT / "noxfile.py").read_text()


def test_the_version_is_written_in_one_file() -> None:
    files = [
        *ROOT.glob("*.*"),
        *(p for folder in ("chai", "docs", "tools", "tests") for p in (ROOT / folder).rglob("*.*")),
    ]
    texts = {p: p.read_text() for p in files if p.suffix in (".py", ".toml", ".md", ".yml", ".json")}
    assert len(texts) > 500
    assert [p for p, text in texts.items() if chai.__version__ in text] == [ROOT / "chai" / "__init__.py"]


def test_the_changelog_begins_with_this_version() -> None:
    version, _, development = chai.__version__.partition(".dev")
    text = (ROOT / "CHANGELOG.md").read_text()
    (first, *_) = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert re.fullmatch(rf"{re.escape(version)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", first)
    assert bool(development) == first.endswith("(unreleased)") and text.count("unreleased") == bool(development)


def test_the_package_names_the_pythons_that_are_tested() -> None:
    named = set(re.findall(r"Python :: (3\.\d+)", PROJECT))
    assert named - set(re.findall(r'"(3\.\d+)"', NOX)) == {"3.11"}, "the one of nox -s tests"


def test_noxfile_says_which_environments_are_those_of_ci() -> None:
    names = re.findall(r'^@nox.session\(tags=\["ci"\]\)\ndef (\w+)', NOX, re.MULTILINE)
    listed = re.findall(r"^(\w+) +\S", NOX.split('"""')[1].partition("\n\n")[2], re.MULTILINE)
    assert listed[: len(names)] == names
    assert f"the first {['four', 'five', 'six', 'seven', 'eight'][len(names) - 4]}." in NOX
