"""The pages lead somewhere, all of them are in the site, and the site loads nothing from elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
from argparse import SUPPRESS
from collections.abc import Iterator
from pathlib import Path

import pytest

import chai
from chai.cli import COMMANDS
from chai.cli.parsing import Parser
from tests.conftest import ROOT

SPEC = importlib.util.spec_from_file_location("chai_pages", ROOT / "tools" / "pages.py")
assert SPEC is not None and SPEC.loader is not None
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)
PAGES: list[Path] = site.pages()
TEXT = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> Iterator[str]:
    """The names that headings get on GitHub and in the site."""
    for title in re.findall(r"^#+ (.*)", prose(page), re.MULTILINE):
        yield "".join(c for c in title.lower() if c.isalnum() or c in " -_").replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", prose(page)):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_is_in_the_site_once() -> None:
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    named = re.findall(r"- (\S+\.md)$", nav, re.MULTILINE)
    assert sorted(named) == [str(page.relative_to(ROOT)) for page in PAGES]


def test_no_page_is_left_out() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no clone")
    assert {*map(str, (page.relative_to(ROOT) for page in PAGES))} == {
        name for name in listed.stdout.split() if not name.startswith(".github/")
    }


def test_each_tool_is_in_the_list_of_tools() -> None:
    listed = (ROOT / "tools" / "README.md").read_text()
    assert [path.name for path in sorted((ROOT / "tools").glob("*.py")) if f"`{path.name}`" not in listed] == []


def test_each_public_name_is_on_a_page() -> None:
    assert [name for name in chai.__all__ if not re.search(rf"\b{name}\b", TEXT)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_on_a_page(command: str) -> None:
    parser = Parser(prog=command, add_help=False)
    importlib.import_module(f"chai.cli.{command}").arguments(parser)
    spellings = [
        action.option_strings for action in parser._actions if action.option_strings and action.help != SUPPRESS
    ]
    assert spellings
    assert [each for each in spellings if not any(re.search(rf"(?<![\w-]){one}(?![\w-])", TEXT) for one in each)] == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://example.org/a.js"></script>',
        "<script async src='//example.org/a.js'></script>",
        "<script src=https://example.org/a.js></script>",
        '<link rel="stylesheet" href="https://example.org/a.css">',
        '<link href="https://example.org" rel="preconnect" crossorigin>',
        '<img alt="x" src="http://example.org/a.png">',
        "@font-face { src: url(https://example.org/a.woff) }",
        '@import "//example.org/a.css";',
        '<pre class="mermaid">graph</pre>',
    ],
)
def test_what_a_page_would_load_is_noticed(html: str) -> None:
    assert site.REMOTE.search(f"<p>before</p>\n{html}\n<p>after</p>")


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://example.org">a link</a> <img src="docs/demo.png">',
        '<link rel="canonical" href="https://example.org/docs/">',
        '<script src="assets/bundle.js"></script> <link rel="stylesheet" href="../assets/main.css">',
        '<svg xmlns="http://www.w3.org/2000/svg"></svg> <div class="diagram">mermaid</div>',
        "a { background: url(data:image/svg+xml;charset=utf-8,<svg/>) }",
    ],
)
def test_links_and_files_of_the_site_are_none_of_that(html: str) -> None:
    assert not site.REMOTE.search(html)
