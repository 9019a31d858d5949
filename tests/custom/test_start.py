"""The start of a process with custom layers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NET = (
    'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: [2, 3] }} }} }}\n'
    'layer {{ name: "probe" type: "{type}" bottom: "x" top: "y" user_defined_layer: true }}\n'
)


@pytest.mark.parametrize("type", ["LRN", "LeakyReLU", "identity"])
def test_shipped_layers_start_without_numba(tmp_path: Path, type: str) -> None:
    """Importing it, and its first function, take longer than thousands of these layers."""
    (tmp_path / "net.prototxt").write_text(NET.format(type=type))
    code = (
        "import sys, numpy, chai\n"
        "net = chai.Net('net.prototxt', device='float')\n"
        "net.forward(numpy.ones((2, 3), 'f'))\n"
        "print([s.name for s in net.perf.custom], 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['probe'] False"


def test_another_process_finds_the_compiled_code(tmp_path: Path) -> None:
    """Whatever the order of its sets and dicts is."""
    pytest.importorskip("numba")
    (tmp_path / "net.prototxt").write_text(NET.format(type="Doubled"))
    (tmp_path / "doubled.py").write_text(
        "import chai\n\n\n"
        "@chai.custom('Doubled')\n"
        "def doubled(x):\n"
        "    x.out_ptrs[0][:] = 2 * x.in_ptrs[0]\n\n\n"
        "@doubled.shape\n"
        "def shape(x):\n"
        "    return [tuple(x.input_dims[0])]\n"
    )
    code = (
        "import chai\n"
        "chai.load_custom('doubled.py')\n"
        "layer = chai.Net('net.prototxt', device='float').graph.layer('probe')\n"
        "stats = layer.frame(((2, 3),)).compiled.dispatcher.stats\n"
        "print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))"
    )
    for seed, wanted in (("1", "0 1"), ("2", "1 0"), ("3", "1 0")):
        env = {**os.environ, "CHAI_CACHE": str(tmp_path / "cache"), "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == wanted
