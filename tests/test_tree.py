"""The size of files and folders: what a newcomer has to look through."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.test_imports import FILES, PACKAGE

LINES = 450
SCREEN, LONG = 50, 3  # lines of a function, and how many functions may have more
HAND, MANY = 6, 15  # parameters of a function, and how many functions may have more
MODULES_OF_THE_ROOT = 8
MODULES_OF_A_FOLDER = 15
LISTS = {"layers", "cli", "tasks"}  # one file per type, command or kind: the folder is the list
RTL = PACKAGE.parent / "hw_overlays" / "rtl"
SOURCES = [*FILES, *sorted(RTL.rglob("*.py"))]
FOLDERS = sorted({path.parent for path in SOURCES} - {PACKAGE})


def test_no_file_is_longer_than_a_reader_takes_in() -> None:
    assert [path for path in SOURCES if len(path.read_text().splitlines()) > LINES] == []


def test_the_root_has_few_modules() -> None:
    assert len([p for p in PACKAGE.glob("*.py") if not p.name.startswith("__")]) <= MODULES_OF_THE_ROOT


@cache
def functions() -> list[tuple[str, ast.FunctionDef]]:
    """Each function of the package, with its place."""
    return [
        (f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}", node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]


def parameters(function: ast.FunctionDef) -> int:
    """How many arguments it names, beside self and cls."""
    arguments = function.args
    return len({a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {"self", "cls"})


def test_few_functions_are_longer_than_a_screen() -> None:
    places = [place for place, node in functions() if (node.end_lineno or 0) - node.lineno >= SCREEN]
    assert len(places) <= LONG, places


def test_few_functions_have_many_parameters() -> None:
    """Those of other systems' calls, and some: what a function needs more of has a name and goes inward as one object."""
    places = [place for place, node in functions() if parameters(node) > HAND]
    assert len(places) <= MANY, places


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(PACKAGE.parent)))
def test_no_folder_has_more_modules_than_one_looks_through(folder: Path) -> None:
    modules = [p.name for p in folder.glob("*.py") if p.name != "__init__.py"]
    assert len(modules) <= MODULES_OF_A_FOLDER or folder.name in LISTS, modules
