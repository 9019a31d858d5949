"""The size of files and folders: what a newcomer has to look through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_imports import FILES, PACKAGE

LINES = 450
MODULES_OF_THE_ROOT = 9
MODULES_OF_A_FOLDER = 15
LISTS = {"layers", "cli", "tasks"}  # one file per type, command or kind: the folder is the list
RTL = PACKAGE.parent / "hw_overlays" / "rtl"
SOURCES = [*FILES, *sorted(RTL.rglob("*.py"))]
FOLDERS = sorted({path.parent for path in SOURCES} - {PACKAGE})


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE.parent)))
def test_no_file_is_longer_than_a_reader_takes_in(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


def test_the_root_has_few_modules() -> None:
    assert len([p for p in PACKAGE.glob("*.py") if not p.name.startswith("__")]) <= MODULES_OF_THE_ROOT


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(PACKAGE.parent)))
def test_no_folder_has_more_modules_than_one_looks_through(folder: Path) -> None:
    modules = [p.name for p in folder.glob("*.py") if p.name != "__init__.py"]
    assert len(modules) <= MODULES_OF_A_FOLDER or folder.name in LISTS, modules
