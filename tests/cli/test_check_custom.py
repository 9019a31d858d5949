"""chai check --custom: a type, or what the files define that are named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from chai.cli import main
from chai.plugins.loading import load_custom
from chai.plugins.registry import Registry
from tests.opencl.common import KERNEL, XML, runs
from tests.passes.common import prototxt
from tests.plugins.common import flagged
from tests.plugins.conftest import registry

__all__ = ["registry"]
SHAPE = (2, 3, 5, 7)
MINE = """
import chai

@chai.custom("mine", jit=False)
def mine(x):
    x.top[0][...] = 2 * x.bottom[0]

@mine.impl("other", jit=False)
def other(x):
    x.top[0][...] = x.bottom[0] + x.bottom[0] FAULT
"""
CLASS = """
import caffe

class Half(caffe.Layer):
    def setup(self, bottom, top): pass
    def reshape(self, bottom, top): top[0].reshape(*bottom[0].data.shape)
    def forward(self, bottom, top): top[0].data[...] = bottom[0].data / 2
"""
LINES = f"""a mine data -> a : {flagged()}
b LeakyReLU a -> b : user_defined_layer: true
c Python b -> c : python_param {{ module: "half" layer: "Half" }}
d Twice c -> y"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry) -> Path:
    """The current folder, with a network of four custom layers: of a file, shipped, of a class and of an XML."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(prototxt(LINES, SHAPE))
    (tmp_path / "mine.py").write_text(MINE.replace("FAULT", ""))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "half.py").write_text(CLASS)
    (tmp_path / "layers.xml").write_text(XML)
    (tmp_path / "twice.cl").write_text(KERNEL)
    for place in ("mine.py", "lib", "layers.xml"):
        load_custom(place)
    return tmp_path


def checked(capsys: Any, *arguments: str, code: int = 0) -> set[tuple[str, str]]:
    """Layer and way of each row."""
    assert main(["check", "net.prototxt", *arguments, "--json"]) == code
    return {(row["layer"], row["way"]) for row in json.loads(capsys.readouterr().out)["rows"]}


@pytest.mark.parametrize(
    ("places", "ways"),
    [
        (["mine.py"], {("a", "python"), ("a", "other (python)")}),
        (["lib"], {("c", "python")}),
        (["lib/half.py"], {("c", "python")}),
        (["mine.py", "lib"], {("a", "python"), ("a", "other (python)"), ("c", "python")}),
    ],
)
def test_the_layers_that_a_file_or_folder_defines(folder: Path, capsys: Any, places: list[str], ways: Any) -> None:
    custom = [word for place in places for word in ("--custom", place)]
    assert checked(capsys, *custom) == ways


@runs
def test_the_layers_of_an_xml(folder: Path, capsys: Any) -> None:
    assert checked(capsys, "--custom", "layers.xml") == {("d", "opencl")}


def test_one_that_disagrees(folder: Path, capsys: Any) -> None:
    (folder / "mine.py").write_text(MINE.replace("FAULT", "+ 1"))
    assert main(["check", "net.prototxt", "--custom", "mine.py"]) == 1
    assert re.search(r"a +8x3x5x7 +other .* FAILED", capsys.readouterr().out)


def test_a_file_whose_types_the_network_has_not(folder: Path, capsys: Any) -> None:
    (folder / "more.py").write_text(MINE.replace("mine", "more").replace("FAULT", ""))
    assert main(["check", "net.prototxt", "--custom", "more.py"]) == 2
    said = capsys.readouterr().err
    assert "--custom more.py: net has no layer that it defines" in said
    assert "custom types here: LeakyReLU, Twice, half.Half, mine" in said


def test_an_option_for_images_is_refused(folder: Path, capsys: Any) -> None:
    assert main(["check", "net.prototxt", "--custom", "mine.py", "--bound", "3"]) == 2
    assert "--bound does nothing without images: mine.py is checked" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["folder", "file"])
def test_a_type_of_which_a_folder_has_the_name(folder: Path, capsys: Any, place: str) -> None:
    """The type is checked, and nothing in the folder is run; as a path it is the folder."""
    if place == "file":
        (folder / "mine").write_text("")
    else:
        (folder / "mine").mkdir()
        (folder / "mine" / "trap.py").write_text("import chai\nraise SystemError('run')\n")
    for name in ("LeakyReLU", "gemm"):
        (folder / name).mkdir()
    assert checked(capsys, "--custom", "mine") == {("a", "python"), ("a", "other (python)")}
    assert {layer for layer, _ in checked(capsys, "--custom", "LeakyReLU")} == {"b"}  # shipped: not loaded so far
    assert main(["check", "net.prototxt", "--custom", "gemm"]) == 2
    assert "gemm: no custom layer of that type in net, and the path is ./gemm" in capsys.readouterr().err
    assert main(["check", "net.prototxt", "--custom", "./mine"]) == 65
    assert ("SystemError: run" if place == "folder" else "is not a Python file") in capsys.readouterr().err


def test_a_folder_of_no_types_name(folder: Path, capsys: Any) -> None:
    assert checked(capsys, "--custom", "lib", "--custom", "mine") == {("a", "python"), ("a", "other (python)")}
