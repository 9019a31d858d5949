"""What a process does before its first result, and what it leaves alone because it would take long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import chai
from chai.artifact.save import save
from chai.kernels.native.library import library
from chai.zoo.card import Card
from tests.artifact.common import NETS, compiled, data
from tests.passes.common import network

# each takes as long to import as ten modules of chai or more
SLOW = {"hashlib", "logging", "inspect", "shutil", "importlib.metadata", "asyncio", "numba", "llvmlite"}

# of chai, with what is in these folders: what only reading, planning, compiling and showing a network needs
UNNEEDED = (
    "artifact.save chaidnn cli cv codegen.arrange codegen.compile codegen.cycles detect devices.float "
    "devices.pynq devices.rtlsim devices.vtasim driver evaluate graph.fillers graph.source images "
    "kernels.native.chain offload.cost offload.formats offload.headroom "
    "offload.merge_parallel offload.partition offload.planning offload.scheduling overlay.architecture "
    "overlay.checks parser passes plugins.composed plugins.opencl plugins.prange_numba plugins.xchange_numba pycaffe quantizer "
    "report runtime.folded runtime.steps.forward runtime.lanes runtime.perf runtime.source tasks.coarser "
    "tasks.probe tasks.target util.data.journal util.data.jsonfile util.data.npy util.data.shelf util.html util.table vta "
    "zoo.card zoo.card_file zoo.fetch zoo.locate zoo.networks"
)
IN_NUMPY = "kernels.in_numpy kernels.pooling"  # what runs Tasks where there are no kernels in C


def test_a_compiled_network_needs_neither_protobuf_nor_a_caffemodel(tmp_path: Path) -> None:
    net = chai.Net("digits")
    net.calibrate(np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8) / 64)
    save(net, tmp_path / "digits.chai")
    modules, opened = started(tmp_path / "digits.chai", tmp_path)
    assert "chai.plugins.frame" in modules  # it has custom layers
    assert not SLOW.intersection(modules)
    assert not [m for m in modules if m.startswith(("google.protobuf", "subprocess", "numba"))]
    assert not loaded(UNNEEDED, modules)
    assert not [o for o in opened if o.endswith((".caffemodel", ".prototxt", ".desc"))]


def test_a_compiled_network_imports_little_of_the_standard_library(tmp_path: Path) -> None:
    modules, _ = started(compiled(tmp_path, "several outputs")[1], tmp_path)
    assert "chai.artifact.source" in modules
    assert not {*SLOW, "pathlib", "urllib.parse"}.intersection(modules)


def test_a_compiled_network_imports_what_running_it_needs(tmp_path: Path) -> None:
    """No custom layers, planner, compiler of segments, prototxts, pictures, threads; nothing that only shows something."""
    modules, _ = started(compiled(tmp_path, "several outputs")[1], tmp_path)
    assert not loaded(UNNEEDED + " plugins util.log util.private", modules)
    assert bool(loaded(IN_NUMPY, modules)) == (library() is None)


def test_a_compiled_network_with_an_lrn_on_the_overlay_imports_no_more(tmp_path: Path) -> None:
    lines = NETS["several outputs"] + "\nn1 LRN p1 -> n1 : lrn_param { local_size: 3 alpha: 0.1 beta: 0.75 }"
    with network(tmp_path, lines, device="null") as net:
        net.calibrate(data())
        save(net, tmp_path / "net.chai")
    modules, _ = started(tmp_path / "net.chai", tmp_path)
    assert "chai.tasks.lrn" in modules
    assert not loaded(UNNEEDED + " plugins", modules)


def test_a_compiled_network_with_a_title_imports_nothing_for_pictures(tmp_path: Path) -> None:
    with network(tmp_path, NETS["several outputs"], device="null") as net:
        net.calibrate(data())
        save(net, tmp_path / "net.chai", Card("a title", ("a", "b")))
    modules, _ = started(tmp_path / "net.chai", tmp_path)
    assert not loaded(UNNEEDED, modules)
    card = chai.Net(tmp_path / "net.chai").card
    assert (card.title, card.labels) == ("a title", ("a", "b"))


def test_a_compiled_network_with_a_card_reads_no_toml(tmp_path: Path) -> None:
    with chai.Net("digits", device="null", calibrate=np.ones((1, 1, 8, 8), np.float32)) as net:
        save(net, tmp_path / "digits.chai", net.card)
    modules, _ = started(tmp_path / "digits.chai", tmp_path)
    assert "chai.images.preprocess" in modules
    assert not {"tomllib", "tomli"}.intersection(modules)
    assert not loaded("detect zoo.card_file", modules)


def test_the_unneeded_modules_exist() -> None:
    folder = Path(chai.__file__).parent
    for name in f"{UNNEEDED} {IN_NUMPY}".split():
        path = folder / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), name


def test_nothing_is_compiled_nor_written_for_a_network_with_an_empty_cache(tmp_path: Path) -> None:
    network(tmp_path, NETS["several outputs"])
    home = tmp_path / "home"
    home.mkdir()
    modules, opened = started(tmp_path / "net.prototxt", home)
    assert "chai.runtime.source" in modules
    assert not (SLOW - {"hashlib", "logging"} | {"subprocess", "ctypes.util"}).intersection(modules)
    assert not [*home.iterdir()]
    assert not [o for o in opened if "numba" in o]


def loaded(names: str, modules: set[str]) -> list[str]:
    """Those of the modules that are one of chai's of these names, or in one of these folders."""
    return [m for m in modules for name in names.split() if f"{m}.".startswith(f"chai.{name}.")]


def started(path: Path, home: Path) -> tuple[set[str], list[str]]:
    """The modules that a network and its first pass on the emulator import beyond numpy and dataclasses, and the files opened.

    Later versions of Python import importlib.metadata to forget what importlib has cached of folders. Caches would lie
    in ``home``.
    """
    code = (
        "import sys, json, os; opened = []\n"
        "sys.addaudithook(lambda e, a: opened.append(str(a[0])) if e == 'open' else None)\n"
        "import numpy, dataclasses, importlib; importlib.invalidate_caches(); before = {*sys.modules}\n"
        "import chai; net = chai.Net(sys.argv[1])\n"
        "net.forward(numpy.zeros(net.shapes[net.inputs[0]], 'f'))\n"
        "print(json.dumps([sorted({*sys.modules} - before), opened]))"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CHAI_", "XDG_"))}
    clean |= {"HOME": str(home), "CHAI_CACHE": str(home / "cache")}
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stderr
    modules, opened = json.loads(done.stdout)
    assert any(o.endswith(path.name) for o in opened)
    return set(modules), opened
