"""The start of a process with custom layers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_another_process_finds_the_compiled_code(tmp_path: Path) -> None:
    """Whatever the order of its sets and dicts is."""
    pytest.importorskip("numba")
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3] } } }\n'
        'layer { name: "probe" type: "LeakyReLU" bottom: "x" top: "y" }\n'
    )
    code = (
        "import chai\n"
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
