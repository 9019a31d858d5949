"""What an import finds in files that the user named: siblings as in Python 2, and errors that name what is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai

from .caffe_layers import DOUBLE, layer, net
from .common import DATA


def write(folder: Path, **files: str) -> Path:
    """A folder ``lib`` with a package ``rpn``, whose module ``double`` has DOUBLE after the code given for it."""
    for name, text in {"rpn/__init__": "", **files}.items():
        path = folder / "lib" / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "lib"


def run(folder: Path, imports: str, **files: str) -> Any:
    """What a layer in the package returns for DATA."""
    lib = write(folder, **files, rpn__in__double=imports + DOUBLE.replace("self.factor *", "FACTOR *"))
    return net(folder, layer(module="rpn.double"), custom=lib).forward(DATA)["y"]


def test_a_sibling_goes_before_the_named_folder_and_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Python 2. Nothing else in the process finds it."""
    (tmp_path / "site").mkdir()
    for name, factor in (("anchors", 7), ("common", 7), ("apart", 5)):
        (tmp_path / "site" / f"{name}_for_test.py").write_text(f"FACTOR = {factor}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    path, names = list(sys.path), set(sys.modules)
    imports = (
        "from anchors_for_test import FACTOR\nimport common_for_test, apart_for_test, rpn.anchors_for_test as same\n"
        "assert (FACTOR, same.FACTOR, common_for_test.FACTOR, apart_for_test.FACTOR) == (2, 2, 3, 5)\n"
    )
    anchors = "import deeper_for_test\nFACTOR = deeper_for_test.TWO\n"
    files = {
        "rpn__in__anchors_for_test": anchors,
        "rpn__in__deeper_for_test": "TWO = 2\n",
        "anchors_for_test": "FACTOR = 3\n",
        "common_for_test": "FACTOR = 3\n",
    }
    assert np.array_equal(run(tmp_path, imports, **files), 2 * DATA)
    assert sys.path == path
    modules = {name for name in set(sys.modules) - names if not name.startswith("chai")}
    assert not {name for name in modules if "for_test" in name} - {"apart_for_test"}


def test_not_in_a_file_that_asks_for_absolute_imports(tmp_path: Path) -> None:
    files = {"rpn__in__config": "FACTOR = 9\n", "config": "FACTOR = 2\n"}
    imports = "from __future__ import absolute_import\nfrom config import FACTOR\n"
    assert np.array_equal(run(tmp_path, imports, **files), 2 * DATA)


def test_a_file_is_no_sibling_of_itself(tmp_path: Path) -> None:
    files = {"rpn__in__config": "from config import *\n", "config": "FACTOR = 3\n"}
    assert np.array_equal(run(tmp_path, "from config import FACTOR\n", **files), 3 * DATA)


@pytest.mark.parametrize("place", ["rpn/", ""])
def test_never_in_place_of_python_numpy_or_caffe(tmp_path: Path, place: str) -> None:
    traps = {
        f"{place}{name}": "raise SystemError('the wrong module')\n" for name in ("json", "numpy", "caffe/__init__")
    }
    imports = "import json, numpy, caffe\nfrom caffe.io import load_image\nassert json.loads('2') == 2\nFACTOR = 2\n"
    assert np.array_equal(run(tmp_path, imports, **traps), 2 * DATA)


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("from nms.gpu_nms import gpu_nms\n", "nms.gpu_nms"),
        ("import generate_anchors_for_test\n", "generate_anchors_for_test"),
        ("from fast_rcnn.config import cfg\n", "fast_rcnn"),
        ("from . import factors\nfrom .missing import x\n", "rpn.missing"),
    ],
)
def test_a_module_that_is_missing_is_named(tmp_path: Path, imports: str, name: str) -> None:
    """It is no package to install merely because its import fails."""
    files = {"nms__in____init__": "", "rpn__in__factors": ""}
    with pytest.raises(chai.PluginError) as caught:
        run(tmp_path, "\n" + imports, **files)
    line = 1 + imports.count("\n")
    place = f"{tmp_path / 'lib' / 'rpn' / 'double.py'}:{line}"
    assert caught.value.message.endswith(f"custom layers: {place}: ModuleNotFoundError: No module named {name!r}")
    assert "pip" not in (hint := caught.value.hint or "") and "--custom FOLDER" in hint


def test_a_module_that_is_missing_when_the_layer_runs(tmp_path: Path) -> None:
    late = DOUBLE.replace("top[0].data[...] =", "import nms.gpu_nms  #")
    lib = write(tmp_path, rpn__in__double=late, nms__in____init__="")
    with pytest.raises(chai.PluginError, match=r"ModuleNotFoundError: No module named 'nms\.gpu_nms'") as caught:
        net(tmp_path, layer(module="rpn.double"), custom=lib).forward(DATA)
    assert "pip" not in (caught.value.hint or "") and "chai_custom" not in str(caught.value)


def test_a_name_that_a_module_has_not(tmp_path: Path) -> None:
    with pytest.raises(chai.PluginError, match=r"module 'rpn.factors' has no attribute 'TWO'"):
        run(tmp_path, "from rpn import factors\nfactors.TWO\n", rpn__in__factors="")
    with pytest.raises(chai.PluginError, match=r"cannot import name 'TWO' from 'rpn.factors'"):
        run(tmp_path, "from rpn.factors import TWO\n", rpn__in__factors="")


def test_a_package_whose_name_is_known_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(chai.PluginError) as caught:
        run(tmp_path, "import yaml\n")
    assert caught.value.hint == "pip install pyyaml"
