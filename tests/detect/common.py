"""Small detectors: an input of 64 x 96 pixels, and convolutions that make maps of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import chai

SIZE = 64, 96
STRIDES = 8, 16
ANCHORS = [[(10.0, 13.0), (16.0, 30.0)], [(33.0, 23.0), (30.0, 61.0)]]
CLASSES = 3
INPUT = 'name: "eye" input: "data" input_shape { dim: [1, 3, 64, 96] }\n'


def a_map(name: str, stride: int, channels: int) -> str:
    """A convolution whose random weights make logits of all sizes."""
    filler = 'weight_filler { type: "gaussian" std: 1 } bias_filler { type: "gaussian" std: 1 }'
    param = f"num_output: {channels} kernel_size: 1 stride: {stride} {filler}"
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "data" top: "{name}" convolution_param {{ {param} }} }}\n'
    )


def reshaped(bottom: str, name: str, *dims: int) -> str:
    shape = " ".join(f"dim: {d}" for d in dims)
    param = f"reshape_param {{ shape {{ {shape} }} }}"
    return f'layer {{ name: "{name}" type: "Reshape" bottom: "{bottom}" top: "{name}" {param} }}\n'


def maps(channels: int, strides: tuple[int, ...] = STRIDES) -> str:
    return "".join(a_map(f"map{stride}", stride, channels) for stride in strides)


def written(folder: Path, layers: str, toml: str = "") -> Path:
    path = folder / "eye.prototxt"
    path.write_text(INPUT + layers)
    if toml:
        path.with_suffix(".toml").write_text(toml)
    return path


def pictures(count: int = 2) -> Any:
    return np.random.default_rng(4).normal(size=(count, 3, *SIZE)).astype(np.float32)


def answers(path: Path, detect: Any = None, weights: Path | None = None, **options: Any) -> dict[str, Any]:
    """The outputs of a network, in float, for ``pictures``."""
    with chai.Net(path, weights, device="float", batch=2, detect=detect, **options) as net:
        return {name: value.copy() for name, value in net.forward(pictures()).items()}
