"""One meaning per class name: the few that several files of chai/ define, each with its reason."""

from __future__ import annotations

from pathlib import Path

from tools.twins import twins

from .test_imports import PACKAGE

MOST = 6
ALLOWED = {
    "Blob": "of a layer in Python as Caffe has it, which pycaffe's derives from",
    "Eltwise": "Caffe's type of layer, and the kind of Task that it becomes",
    "Layer": "of a network; and Caffe's base class of a layer in Python, caffe.Layer",
    "Layers": "pycaffe's L; and what `chai layers --json` prints",
    "Net": "chai.Net, and pycaffe's caffe.Net",
    "Params": "inside each type of layer, its parameters",
}


def test_a_class_name_means_one_thing() -> None:
    """Rename the newer of two classes to what it is; a name that users type or Caffe gave goes into ALLOWED."""
    names = twins(PACKAGE)
    assert {name: places for name, places in names.items() if name not in ALLOWED} == {}
    assert sorted(names) == sorted(ALLOWED), "a reason for a name that is no twin any more"
    assert len(ALLOWED) <= MOST


def test_what_counts_as_a_twin(tmp_path: Path) -> None:
    """Classes at any depth in several files; not in one file, and not names of other things."""
    package = tmp_path / "chai"
    (package / "inner").mkdir(parents=True)
    (package / "a.py").write_text(
        "class Plan: ...\nclass Step: ...\nclass Step: ...\nclass View:\n    class Part: ...\n"
    )
    (package / "inner" / "b.py").write_text(
        "def f():\n    class Part: ...\nPlan = 3\nclass Views: ...\ndef View(): ...\n"
    )
    assert twins(package) == {"Part": ["chai/a.py:5", "chai/inner/b.py:2"]}
