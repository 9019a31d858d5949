"""Docstrings, comments, help texts and pages say what they mean in the field's own words: docs/style.md."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from chai.cli import COMMANDS
from tests.test_imports import FILES, PACKAGE

ROOT = PACKAGE.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])
RELATIVE = ("what", "whether", "how", "of", "as", "from", "where", "who", "whom", "whose", "why", "which")
RARE = ("behind", "stands", "nobody", "anew", "whoever", "beside")
PARTICIPLES = {"found", "given", "made"}
FOLDERS = ("chai", "custom", "hw_overlays", "tests", "tools")
MOST = 3  # of RARE per 10,000 words: where one of them is right, it stays


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@cache
def docstrings(path: Path) -> list[tuple[int, str]]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, documented)]
    return [(getattr(node, "lineno", 1), text) for node in nodes if (text := ast.get_docstring(node))]


def comments(path: Path) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of every command, by one process."""
    code = (
        "import sys, json, io, contextlib\nfrom chai import cli\nout = {}\n"
        "for name in cli.COMMANDS:\n"
        "    text = io.StringIO()\n"
        "    with contextlib.redirect_stdout(text): cli.main([name, '--help'])\n"
        "    out[name] = text.getvalue()\n"
        "print(json.dumps(out))"
    )
    import json

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    texts: dict[str, str] = json.loads(done.stdout)
    return texts


def test_a_docstring_begins_with_what_is_done_or_is() -> None:
    every = [(f"{path}:{line}: {text[:60]}", words(text)[:1]) for path in FILES for line, text in docstrings(path)]
    assert len(every) > 3_000 and not [place for place, first in every if first and first[0] in RELATIVE]


def test_a_variable_is_a_noun() -> None:
    wrong = []
    some = re.compile(rf"\b({'|'.join(PARTICIPLES)})\b")
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        tree = ast.walk(ast.parse(text)) if some.search(text) else ()
        functions = [node for node in tree if isinstance(node, ast.FunctionDef)]
        inside = [node for function in functions for node in ast.walk(function)]
        names = {(n.lineno, n.id) for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        names |= {(n.lineno, n.arg) for n in inside if isinstance(n, ast.arg)}
        wrong += [f"{path}:{line}: {name}" for line, name in sorted(names) if name in PARTICIPLES]
    assert wrong == [], "say what it holds"


def test_help_begins_with_a_verb_and_shows_an_example(helps: dict[str, str]) -> None:
    for name, text in helps.items():
        assert text.startswith(f"usage: chai {name}"), name
        assert len(text.split("\n\n")[0].splitlines()) <= 3, f"the usage of {name} is long"
        assert "example" in text, name
        for option in re.findall(r"^  -[^\n]*?  +(\S+)", text, re.M):
            assert option.lower() not in RELATIVE, (name, option)
    assert not [text for text in COMMANDS.values() if text.split()[0].lower() in (*RELATIVE, "the", "a", "every")]


def test_help_names_each_kind_of_file_that_a_network_can_be(helps: dict[str, str]) -> None:
    taking = {name: text for name, text in helps.items() if "  WEIGHTS  " in text}
    assert {*taking} == {"run", "show", "check", "evaluate", "quantize", "compile", "bench"}
    for name, text in taking.items():
        assert all(kind in text for kind in (".prototxt", ".onnx", ".caffemodel", ".formats.json")), name
        assert (".chai file" in text.split("WEIGHTS  ")[0]) == (name not in ("check", "quantize", "compile")), name


def test_rare_words_are_rare(helps: dict[str, str]) -> None:
    texts = [text for path in FILES for _, text in docstrings(path)]
    texts += [text for path in FILES for text in comments(path)]
    texts += [*helps.values(), *(page.read_text() for page in PAGES)]
    counts = Counter(word for text in texts for word in words(text))
    total = sum(counts.values())
    assert total > 30_000
    rare = {word: counts[word] for word in RARE if counts[word]}
    assert sum(rare.values()) * 10_000 <= MOST * total, f"{rare} in {total} words"
