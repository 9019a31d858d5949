"""``custom=``: a path, a folder, a module, a function or a dict, wherever a network is opened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai import chaidnn
from chai.artifact.save import save
from chai.plugins.registry import REGISTRY

Array = np.ndarray
DATA = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)
NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }
layer { name: "own" type: "triple" bottom: "data" top: "out" user_defined_layer: true xcustom_param { top_dim: [2, 3, 5, 7] } }
"""
CODE = """
import chai

@chai.custom("triple", jit=False)
def anything(x):
    x.out_ptrs[0][:] = 3 * x.in_ptrs[0]
"""


def triple(x: chai.xChangeLayer) -> None:
    x.out_ptrs[0][:] = 3 * x.in_ptrs[0]


def _file(folder: Path) -> Path:
    path = folder / "my_layers.py"
    path.write_text(CODE)
    return path


def _folder(folder: Path) -> Path:
    (folder / "layers").mkdir()
    (folder / "layers" / "a.py").write_text("")
    (folder / "layers" / "b.py").write_text(CODE)
    return folder / "layers"


def _module(folder: Path) -> ModuleType:
    module = ModuleType("mine")
    exec(compile(CODE, str(folder / "mine.py"), "exec"), module.__dict__)
    return module


FORMS: dict[str, Callable[[Path], Any]] = {
    "path": _file,
    "text": lambda folder: str(_file(folder)),
    "folder": _folder,
    "module": _module,
    "decorated": lambda folder: _module(folder).anything,
    "function": lambda _: triple,
    "class": lambda folder: type("Layers", (), {"f": _module(folder).anything}),
    "dict": lambda _: {"triple": triple},
}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    REGISTRY.types.pop("triple", None)
    sys.modules.pop("chai_custom.my_layers", None)


@pytest.fixture
def prototxt(tmp_path: Path) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text(NET)
    return path


def _net(prototxt: Path, custom: Any) -> Array:
    return chai.Net(prototxt, device="float", custom=custom).forward(DATA)["out"]


def _chai(prototxt: Path, custom: Any) -> Array:
    net = chai.Net(prototxt, device="emulator", custom={"triple": triple}, calibrate=DATA)
    save(net, prototxt.with_suffix(".chai"))
    return chai.Net(prototxt.with_suffix(".chai"), device="emulator", custom=custom).forward(DATA)["out"]


def _pycaffe(prototxt: Path, custom: Any) -> Array:
    return caffe.Net(prototxt, caffe.TEST, custom=custom).forward(data=DATA)["out"]


def _chaidnn(prototxt: Path, custom: Any) -> Array:
    info = chaidnn.io_layer_info()
    handle = chaidnn.xiInit(prototxt.parent, prototxt.name, None, info, 2, True, device="float", custom=custom)
    out = np.zeros(DATA.size, np.float32)
    chaidnn.xiExec(handle, [DATA.copy()], [out])
    return out.reshape(DATA.shape)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("entry", [_net, _chai, _pycaffe, _chaidnn])
def test_every_form_is_taken_at_every_entry(entry: Any, form: str, prototxt: Path, tmp_path: Path) -> None:
    custom = FORMS[form](tmp_path)
    assert np.array_equal(entry(prototxt, custom), 3 * DATA)


@pytest.mark.parametrize("form", ["path", "folder"])
def test_types_of_a_path_belong_to_that_network_alone(form: str, prototxt: Path, tmp_path: Path) -> None:
    path = FORMS[form](tmp_path)
    other = tmp_path / "other.py"
    other.write_text(CODE.replace("3 *", "4 *"))
    nets = [chai.Net(prototxt, device="float", custom=p) for p in (path, other)]
    assert [float(net.forward(np.ones_like(DATA))["out"].max()) for net in nets] == [3, 4]
    assert REGISTRY.find("triple") is None
    with pytest.raises(chai.PluginError, match="no custom layer of that type is registered"):
        chai.Net(prototxt, device="float")


def test_a_file_that_fails_is_named_with_its_line(prototxt: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import chai\n\n1 / 0\n")
    with pytest.raises(chai.PluginError, match=r"bad\.py:3: ZeroDivisionError"):
        chai.Net(prototxt, device="float", custom=tmp_path / "bad.py")
