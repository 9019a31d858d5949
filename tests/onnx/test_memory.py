"""Opening a network takes its weights once, and at most three times its largest tensor above what any network takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .common import model, node

ROOM = 12 << 20  # what allocation and the layers of a larger network add
SIDE = 2048  # of square matrices of 16 MB


def network(folder: Path, side: int, kind: str) -> Path:
    """Three products with matrices of this size: as they are, transposed, or as codes with a scale for each output."""
    rng, nodes, tensors, blob = np.random.default_rng(0), [], {}, "x"
    for i in range(3):
        weights: Any = rng.standard_normal((side, side), np.float32)
        name = f"w{i}"
        if kind == "codes":
            weights = (weights * 40).clip(-127, 127).astype(np.int8)
            tensors |= {f"s{i}": np.full(side, 0.01, np.float32), f"z{i}": np.zeros(side, np.int8)}
            nodes.append(node("DequantizeLinear", [name, f"s{i}", f"z{i}"], [f"d{i}"], axis=1))
            name = f"d{i}"
        tensors[f"w{i}"] = weights
        if kind == "gemm":
            nodes.append(node("Gemm", [blob, name], [f"y{i}"], transB=1))
        else:
            nodes.append(node("MatMul", [blob, name], [f"y{i}"]))
        blob = f"y{i}"
    path = folder / f"{kind}{side}.onnx"
    path.write_bytes(model(nodes, {"x": (1, side)}, [blob], tensors))
    return path


def peak(path: Path) -> int:
    """The most bytes that a process of its own has in memory while it opens a network."""
    code = (
        "import sys, chai\n"
        "net = chai.Net(sys.argv[1], device='float')\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return 1024 * int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/status is of Linux")
@pytest.mark.parametrize("kind", ["gemm", "matmul", "codes"])
def test_weights_are_in_memory_once(tmp_path: Path, kind: str) -> None:
    tensor = SIDE * SIDE * 4
    small, large = peak(network(tmp_path, 16, kind)), peak(network(tmp_path, SIDE, kind))
    assert 3 * tensor < large - small  # the weights are there
    assert large - small <= 3 * tensor + 3 * tensor + ROOM
