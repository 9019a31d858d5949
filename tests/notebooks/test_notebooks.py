"""The notebooks, executed as Jupyter does: without weights and photos, and with them."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HANG, ROOT, need_models

FOLDER = ROOT / "chai" / "notebooks"
NAMES = sorted(p.name for p in FOLDER.glob("*.ipynb"))


def cells(name: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((FOLDER / name).read_text("utf-8"))["cells"]
    return cells


def execute(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> Outputs:
    """Run a notebook in a folder, and then ``more`` cells. An error in a cell is an error here."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[dev]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install -e '.[dev]'")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    notebook = nbformat.read(FOLDER / name, 4)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in more]
    resources = {"metadata": {"path": str(folder)}}
    waits = {
        "timeout": HANG,
        "startup_timeout": HANG,
        "iopub_timeout": HANG,
    }  # after the last, outputs would be dropped
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=resources, **waits).execute()
    return Outputs([output for cell in notebook.cells for output in cell.get("outputs", [])])


class Outputs:
    """What the cells of a notebook have shown."""

    def __init__(self, outputs: list[Any]) -> None:
        self.printed = "".join(o["text"] for o in outputs if o["output_type"] == "stream" and o["name"] == "stdout")
        self.told = "".join(o["text"] for o in outputs if o["output_type"] == "stream" and o["name"] == "stderr")
        data = [o["data"] for o in outputs if "data" in o]
        self.pages: list[str] = [d["text/html"] for d in data if "text/html" in d]
        self.pictures: list[str] = [d["image/png"] for d in data if "image/png" in d]


@pytest.fixture
def googlenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos, where chai fetch has been before."""
    source = need_models()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "bvlc_googlenet.caffemodel").symlink_to(source / "googlenet" / "weights.caffemodel")
    (tmp_path / "pictures").mkdir()
    for name in ("camel.jpg", "goldfish.JPEG"):
        (tmp_path / "pictures" / name).symlink_to(source / "googlenet" / "images" / name)
    (tmp_path / "synset_words.txt").symlink_to(source / "synset_words.txt")
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "cache"))
    return tmp_path


# -- as files


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    for cell in cells(name):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert (FOLDER / name).stat().st_size < 10_000


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_imports_nothing_that_chai_does_not_install(name: str) -> None:
    code = "\n".join("".join(c["source"]) for c in cells(name) if c["cell_type"] == "code")
    roots = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").split(".")[0])
    assert "chai" in roots
    assert roots <= {"chai", "numpy", *sys.stdlib_module_names}
    assert not re.search(r"\b(chai\S*|net)\._[a-z]", code), "notebooks use what is public"


def test_each_notebook_leads_to_the_next() -> None:
    linked = [re.findall(r"\]\((\S+\.ipynb)\)", "".join("".join(c["source"]) for c in cells(name))) for name in NAMES]
    assert linked == [[name] for name in NAMES[1:]] + [[]]


# -- as Jupyter runs them


def test_hello_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = execute(NAMES[0], tmp_path, monkeypatch)
    assert shown.printed.startswith("The weights of GoogLeNet are not here (chai fetch googlenet): digits instead.\n")
    assert "same best answer: 6 of 6" in shown.printed
    assert len(shown.pictures) == 6 + 4  # with boxes
    assert "at first batch" in shown.pages[0] and "inception_a/3x3" in shown.pages[0]


def test_hello_googlenet(googlenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = execute(NAMES[0], googlenet, monkeypatch, "print([labels[p.argmax()] for p in scores])")
    assert "digits" not in shown.printed
    assert "same best answer: 2 of 2" in shown.printed
    assert ast.literal_eval(shown.printed.splitlines()[-1]) == [
        "Arabian camel, dromedary, Camelus dromedarius",
        "goldfish, Carassius auratus",
    ]
    assert len(shown.pictures) == 2 + 4
    assert "inception_5b/output" in shown.pages[0]


def test_hello_without_photos(googlenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (googlenet / "pictures").rename(googlenet / "photos")
    shown = execute(NAMES[0], googlenet, monkeypatch)
    assert shown.printed.startswith("There is no folder 'pictures' beside this notebook: digits instead.\n")


def test_a_layer_is_written_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = execute(NAMES[1], tmp_path, monkeypatch)
    assert shown.printed.count("right: 100 of 100") == 3
    assert shown.told.count("[INFOx] Custom Layer - 1 : classifier\n") == 3
    reported = re.findall(r"Custom layer Latency : ([\d.]+) ms", shown.told)
    listed = re.findall(r"^(?:plain Python|numba|numpy) +([\d.]+) ms", shown.printed, re.MULTILINE)
    assert len(listed) == 3
    assert [float(ms) for ms in listed] == pytest.approx([float(ms) for ms in reported], abs=1e-3)
    assert all("<svg" in page for page in shown.pages) and len(shown.pages) == 2


@pytest.mark.parametrize("weights", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["digits", "googlenet"])
def test_where_the_time_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: bool, request: pytest.FixtureRequest
) -> None:
    if weights:
        request.getfixturevalue("googlenet")
    shown = execute(NAMES[2], tmp_path, monkeypatch)
    net, schedule, first, moved, streamed = shown.pages
    assert ("inception_5b/output" in net) == weights
    name = re.findall(r"^moved (.*)$", shown.printed, re.MULTILINE)[0]
    assert "chosen by the user" in moved and "chosen by the user" not in schedule
    assert f"<td>host<td>{name}<td" in moved
    assert moved.count("<td>Unpack ") > schedule.count("<td>Unpack ")
    assert "<svg" in first and "<svg" in streamed
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert {e["name"] for e in trace["traceEvents"] if e["ph"] == "X"} > {"Pack data", "prob"}


def test_quantise_and_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = execute(NAMES[3], tmp_path, monkeypatch)
    assert {p.name for p in tmp_path.iterdir()} >= {"digits_6bit.prototxt", "digits_6bit.caffemodel"}
    lines = re.findall(r"agrees (\d+)/180 .*right (\d+), in float (\d+)   KL ([\d.]+)", shown.printed)
    (plain, _, truth, before), (quantised, right, _, after) = lines
    assert int(quantised) >= int(plain) and float(after) < float(before)
    assert int(right) > 170 and truth == "180"
    assert 'quant_type: "DynamicFixed"' in shown.printed
    first, second = shown.pages
    assert "formats: 6-bit DynamicFixed" in first and "formats: precision_param" in second
