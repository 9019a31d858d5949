"""Each thing that the stand-in knows stands in the public file that it names, where these repositories are at hand.

``CHAI_TEST_SCRIPTS`` is a folder with checkouts: ``Xilinx/finn``, ``Xilinx/PYNQ``, ``apache/tvm-vta``, ``analogdevicesinc/hdl``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.docs.test_pages import ROOT

from .vivado import cells, known

FOLDER = os.environ.get("CHAI_TEST_SCRIPTS", "")
PAGE = ROOT / "docs" / "build.md"


def entries() -> Iterator[tuple[str, str]]:
    """Words that a file has to show, each with the file."""
    for name, command in known.COMMANDS.items():
        for word in (name, *command.values.split(), *command.flags.split()):
            yield word, command.file
    for properties in known.PROPERTIES.values():
        for name, (file, values) in properties.items():
            yield name, file
            for braced, plain in re.findall(r"\{([^}]*)\}|(\S+)", values):
                yield braced or plain, file
    for table in (known.PARAMETERS, known.RULES, known.KINDS):
        yield from table.items()
    for name, kind in cells.CELLS.items():
        for property, (file, _, _) in kind.properties.items():
            yield property, file
        for pin, about in kind.pins.items():
            yield pin, about.file
        for interface, seen in kind.interfaces.items():
            yield interface, seen.file
        for segment, (file, _, _) in kind.segments.items():
            yield segment.split("/")[1], file
        yield (
            name,
            known.Z2 if name in ("axi_intc", "xlconcat") else known.FINN if name != "proc_sys_reset" else known.VTA,
        )


@lru_cache
def text(file: str) -> str:
    return Path(FOLDER, file).read_text(errors="replace").lower()


PROVEN = sorted({(word, file) for word, file in entries() if file})
UNPROVEN = sorted({word for word, file in entries() if not file})


@pytest.mark.skipif(not FOLDER, reason="CHAI_TEST_SCRIPTS names no folder with the public repositories")
def test_the_files_show_it() -> None:
    assert len(PROVEN) > 200
    assert [(word, file) for word, file in PROVEN if not shown(word, file)] == []


def shown(word: str, file: str) -> bool:
    """Whether a file has a word by itself, in letters of whatever size: Tcl's properties have either."""
    return bool(re.search(rf"(?<![\w])(?<!\w-){re.escape(word.lower())}(?!\w)", text(file)))


def test_what_no_file_shows_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert UNPROVEN and [word for word in UNPROVEN if f"`{word}`" not in page] == []


@pytest.mark.skipif(not FOLDER, reason="CHAI_TEST_SCRIPTS names no folder with the public repositories")
def test_the_files_give_properties_such_values() -> None:
    """At least one value that a file gives to a property is one that the stand-in accepts, and is written as it wants it."""
    wrong = []
    for kind in cells.CELLS.values():
        for name, (file, values, _) in kind.properties.items():
            if not file:
                continue
            settings = re.findall(rf"config\.{name.lower()}\}}?\s+(\{{[^}}]*\}}|\S+)", text(file))
            plain = {value.strip("{}").rstrip("]") for value in settings}
            allowed = {(braced or word).lower() for braced, word in re.findall(r"\{([^}]*)\}|(\S+)", values)}
            if not plain or (allowed and not plain & allowed):
                wrong.append((name, file, plain))
    assert wrong == []
