"""Modules of Caffe's Python layers: where they are looked for, and whose code is run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.env import env
from chai.plugins.loading import registry_of
from chai.plugins.registry import Registry
from tests.passes.common import prototxt

from .caffe_layers import DOUBLE, layer, net, of
from .common import DATA, SHAPE, python

# -- classes of modules that the program has imported


@pytest.fixture
def imported() -> Iterator[ModuleType]:
    module = ModuleType("imported_layers")
    vars(module)["caffe"] = caffe
    exec(DOUBLE.replace("import caffe\n", ""), vars(module))
    sys.modules["imported_layers"] = module
    yield module
    del sys.modules["imported_layers"]


def test_pycaffe_takes_classes_of_imported_modules_and_chai_does_when_told(
    tmp_path: Path, imported: ModuleType
) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(prototxt(layer(module="imported_layers"), SHAPE))
    assert np.array_equal(caffe.Net(str(path), caffe.TEST).forward(data=DATA)["y"], 2 * DATA)
    own = {"imported_layers.Double": imported.Double}
    for custom in (sys.modules, [sys.modules], imported, imported.Double, own):
        assert np.array_equal(chai.Net(path, device="float", custom=custom).forward(DATA)["y"], 2 * DATA)
    with pytest.raises(chai.UnknownLayer):
        chai.Net(path, device="float")
    path.write_text(prototxt(layer("Popen", module="subprocess"), SHAPE))
    with pytest.raises(chai.UnknownLayer, match="it is Popen of the Python module 'subprocess'"):
        caffe.Net(str(path), caffe.TEST)


def test_a_name_makes_no_imported_module_run_code(
    tmp_path: Path, imported: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As modules do that import others for the first use of a name."""
    asked: list[str] = []
    monkeypatch.setattr(imported, "__getattr__", asked.append, raising=False)
    (tmp_path / "net.prototxt").write_text(prototxt(layer("Absent", module="imported_layers"), SHAPE))
    with pytest.raises(chai.UnknownLayer, match="it is Absent of the Python module 'imported_layers'"):
        caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    assert asked == []


# -- whose code is run


@pytest.fixture
def trap(tmp_path: Path) -> Callable[[Path], Path]:
    """Write a module that leaves a mark when it is run."""

    def write(file: Path) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"import caffe\nopen({str(tmp_path / 'ran')!r}, 'w').close()\nclass Double(caffe.Layer): pass\n"
        )
        return file

    yield write
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "module",
    [
        "antigravity",
        "os",
        "../x",
        "..x",
        "a/b",
        "",
        "outside",
        "beside",
        "here",
        "x\x00y",
        "sub.deep",
        "x" * 300,
        "x." * 3000 + "x",
    ],
)
def test_a_prototxt_chooses_no_module_of_its_own(
    tmp_path: Path, trap: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Neither of Python, nor of PYTHONPATH, nor beside the prototxt or in the current folder."""
    monkeypatch.syspath_prepend(str(trap(tmp_path / "path" / "outside.py").parent))
    monkeypatch.chdir(trap(tmp_path / "cwd" / "here.py").parent)
    trap(tmp_path / "x.py")
    trap(tmp_path / "nets" / "beside.py")
    trap(tmp_path / "nets" / "sub" / "deep.py")
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "mine.py").write_text(DOUBLE)
    path = tmp_path / "nets" / "net.prototxt"
    path.write_text(prototxt(layer(module=module).replace("\x00", "\\000"), SHAPE))
    before = set(sys.modules)
    for custom in (None, tmp_path / "named", tmp_path / "named" / "mine.py", {"gemm": lambda x: None}):
        with pytest.raises(chai.UnknownLayer, match=r"it is Double of the Python module") as caught:
            chai.Net(path, device="float", custom=custom)
        assert "--custom" in (caught.value.hint or "") and "may import it" in (caught.value.hint or "")
    assert not {"antigravity", "outside", "here", "beside"} & (set(sys.modules) - before)


def test_of_a_folder_only_the_module_that_is_named_runs(tmp_path: Path, trap: Callable[[Path], Path]) -> None:
    """And what it imports: its neighbours, by either kind of import, and their caffe."""
    folder = tmp_path / "lib"
    trap(folder / "clean.py")
    trap(folder / "rpn" / "train.py")
    (folder / "rpn" / "__init__.py").write_text("")
    (folder / "rpn" / "double.py").write_text(
        "import caffe.io\nfrom rpn.factors import TWO\nfrom .factors import Base\nimport rpn.factors as f, config\n"
        "assert f.TWO is TWO and config.cfg.THREE == 3\n"
        "class Double(Base):\n"
        "    def forward(self, bottom, top):\n"
        "        from rpn import factors\n"
        "        assert factors is f\n"
        "        top[0].data[...] = TWO * bottom[0].data\n"
    )
    (folder / "rpn" / "factors.py").write_text(
        "from caffe import Layer\nTWO = 2\n"
        "class Base(Layer):\n    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
    )
    (folder / "config.py").write_text("class cfg:\n    THREE = 3\n")
    double = net(tmp_path, layer(module="rpn.double"), custom=folder)
    assert np.array_equal(double.forward(DATA)["y"], 2 * DATA)
    assert not {"rpn", "config", "caffe"} & set(sys.modules)
    assert str(folder) not in sys.path


@pytest.mark.parametrize("line", ["import chai.pycaffe as caffe", "from chai.pycaffe import layers as L"])
def test_a_program_for_pycaffe_does_not_run_itself_again(tmp_path: Path, line: str) -> None:
    """It is in the folder of its layers, as with PYTHONPATH=.; running it again opened the net again, and so on."""
    (tmp_path / "mine.py").write_text(DOUBLE)
    (tmp_path / "net.prototxt").write_text(prototxt(layer(), SHAPE))
    (tmp_path / "infer.py").write_text(
        f"{line}\nimport chai.pycaffe\nprint('once')\n"
        "net = chai.pycaffe.Net('net.prototxt', 1, custom='.')\n"
        f"print(net.forward(data=[[[[3] * {SHAPE[3]}] * {SHAPE[2]}] * {SHAPE[1]}] * {SHAPE[0]})['y'].max())\n"
    )
    assert python(f"import os, runpy\nos.chdir({str(tmp_path)!r})\nrunpy.run_path('infer.py')") == "once\n6.0"


def test_packages_and_files_called_init(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "rpn"
    folder.mkdir(parents=True)
    (folder / "factors.py").write_text("TWO = 2\n")
    (folder / "__init__.py").write_text("from .factors import TWO\n" + DOUBLE.replace("self.factor *", "TWO *"))
    for module, custom in (("rpn", folder.parent), ("__init__", folder / "__init__.py")):
        double = net(tmp_path, layer(module=module, text="9"), custom=custom)
        assert np.array_equal(double.forward(DATA)["y"], 2 * DATA)


@pytest.mark.parametrize("place", ["mine.py", "."])
def test_files_and_folders_of_chai_custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    net(tmp_path, layer())
    monkeypatch.setenv("CHAI_CUSTOM", str(tmp_path / place))
    env.cache_clear()
    assert np.array_equal(chai.Net(tmp_path / "net.prototxt", device="float").forward(DATA)["y"], 2 * DATA)


def test_two_folders_may_have_modules_of_one_name(tmp_path: Path) -> None:
    networks = []
    for factor in (2, 5):
        folder = tmp_path / str(factor)
        folder.mkdir()
        (folder / "config.py").write_text(f"factor = {factor}\n")
        code = "import config\n" + DOUBLE.replace("self.factor *", "config.factor *")
        networks.append(net(folder, layer(), code, custom=folder))
    assert [float(n.forward(DATA)["y"].ravel()[0] / DATA.ravel()[0]) for n in networks] == [2, 5]


def test_a_networks_own_folder_goes_before_the_global_ones(tmp_path: Path, registry: Registry) -> None:
    for factor in (2, 5):
        (tmp_path / str(factor)).mkdir()
        (tmp_path / str(factor) / "mine.py").write_text(DOUBLE.replace("self.factor *", f"{factor} *"))
    path = tmp_path / "net.prototxt"
    path.write_text(prototxt(layer(), SHAPE))
    chai.load_custom(tmp_path / "2")
    assert np.array_equal(chai.Net(path, device="float").forward(DATA)["y"], 2 * DATA)
    assert np.array_equal(chai.Net(path, device="float", custom=tmp_path / "5").forward(DATA)["y"], 5 * DATA)
    assert np.array_equal(chai.Net(path, device="float").forward(DATA)["y"], 2 * DATA)
    assert set(registry_of(tmp_path / "5").types) == set()  # nothing was run that no prototxt names


def test_an_installed_caffe_is_the_one_that_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Layer is made in C++: it takes a LayerParameter, and its blobs are read-only."""
    (tmp_path / "site" / "caffe").mkdir(parents=True)
    (tmp_path / "site" / "caffe" / "__init__.py").write_text(
        "class Layer:\n"
        "    def __init__(self, parameter): parameter.name\n"
        "    blobs = property(lambda self: 1 / 0)\n"
        "MARK = 'installed'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    try:
        double = net(tmp_path, layer(), DOUBLE + "assert caffe.MARK == 'installed'\n")
        assert np.array_equal(double.forward(DATA)["y"], 2 * DATA)
        assert not isinstance(of(double), caffe.Layer)
    finally:
        sys.modules.pop("caffe", None)


def test_importing_chai_names_no_module_caffe() -> None:
    code = "import sys, chai, chai.net; print('caffe' in sys.modules, any(m.startswith('chai.pycaffe') for m in sys.modules))"
    assert python(code) == "False False"
