"""Small networks for the tests of passes, partition, formats and schedule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import chai
from chai.blob import Shape
from chai.graph import Graph
from chai.layers.batch_norm import BN, BatchNorm
from chai.passes.infer_shapes import infer_shapes
from chai.runtime.steps import forward

Array = np.ndarray
_LINE = re.compile(r"(\S+) (\S+) (.*?) ?-> ([^:]+?)(?: : (.+))?")

CONV = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }"
DEEP = "convolution_param { num_output: 16 kernel_size: 1 }"  # may begin a concat of the overlay
MAX = "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"
AVE = "pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }"
GLOBAL = "batch_norm_param { use_global_stats: true }"
AFFINE = "scale_param { bias_term: true }"


def prototxt(lines: str, shape: Shape = (2, 3, 5, 7)) -> str:
    """``name Type bottoms -> tops : fields`` per line, behind an Input ``data`` of this shape, unless there is one."""
    text = "" if " Input " in lines else source("data", shape)
    for line in filter(None, map(str.strip, lines.splitlines())):
        parts = _LINE.fullmatch(line)
        assert parts, line
        name, type, bottoms, tops, fields = parts.groups()
        wires = [f'bottom: "{b}"' for b in bottoms.split()] + [f'top: "{t}"' for t in tops.split()]
        text += f'layer {{ name: "{name}" type: "{type}" {" ".join(wires)} {fields or ""} }}\n'
    return text


def source(name: str, shape: Shape) -> str:
    """An Input layer."""
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" {dims(shape)} }}\n'


def dims(shape: Shape) -> str:
    """The parameters of an Input of this shape."""
    return "input_param { shape { " + " ".join(f"dim: {d}" for d in shape) + " } }"


def network(folder: Path, lines: str, shape: Shape = (2, 3, 5, 7), **options: Any) -> chai.Net:
    """The network, with trained parameters that are neither 0 nor 1."""
    path = folder / "net.prototxt"
    path.write_text(prototxt(lines, shape))
    net = chai.Net(path, **{"device": "float", **options})
    train(net.graph)
    return net


def train(graph: Graph) -> None:
    """Seeded numbers for what the fillers leave constant: biases, means, variances, factors."""
    for index, layer in enumerate(graph.layers):
        draw = np.random.default_rng([1, index])
        if isinstance(layer, BatchNorm):
            mean, variance, divisor, *factor_and_addend = layer.blobs
            divisor[...] = 3
            mean[...] = 3 * draw.uniform(-1, 1, mean.shape)
            variance[...] = 3 * draw.uniform(0.5, 2, variance.shape)
            for blob in factor_and_addend:
                blob[...] = draw.uniform(0.5, 1.5, blob.shape)
        else:
            for i, blob in enumerate(layer.blobs):
                if blob.ndim == 1 or isinstance(layer, BN):
                    blob[...] = draw.uniform(0.5, 1.5, blob.shape) * draw.choice([-1, 1], blob.shape)
                if isinstance(layer, BN) and i == 3:  # a variance
                    blob[...] = np.abs(blob)


def make(folder: Path, lines: str, shape: Shape = (2, 3, 5, 7), **options: Any) -> Graph:
    """The Graph of ``network``."""
    return network(folder, lines, shape, **options).graph


def facts(graph: Graph) -> list[Any]:
    """All there is to a Graph, ready to compare."""
    layers = [
        (
            layer.name,
            type(layer),
            layer.bottoms,
            layer.tops,
            layer.params,
            layer.origin,
            layer.slope,
            layer.precision,
            [b.tobytes() for b in layer.blobs],
        )
        for layer in graph.layers
    ]
    return [layers, graph.inputs, graph.outputs, graph.latest]


def values(graph: Graph) -> dict[str, Array]:
    """Every blob the float executor computes from seeded inputs; a fused ReLU follows its layer."""
    shapes = infer_shapes(graph)
    feeds = {
        blob: np.random.default_rng(i).uniform(-2, 2, shapes[blob]).astype(np.float32)
        for i, blob in enumerate(graph.inputs)
    }
    blobs, _ = forward.run(graph, shapes, feeds, set(shapes))
    return blobs


def same(before: Graph, after: Graph, tolerance: float = 0.0) -> None:
    """Every output, by the prototxt's name, has the values it had; every prototxt layer is in one origin or dropped."""
    first, second = values(before), values(after)
    assert before.outputs == after.outputs
    for blob in before.outputs:
        rewritten, wanted = second[after.latest[blob]], first[before.latest[blob]]
        assert rewritten.shape == wanted.shape and rewritten.dtype == np.float32
        assert np.abs(rewritten - wanted).max() <= tolerance * np.abs(wanted).max(), blob
        assert wanted.std() > 0
    origins = [name for layer in after.layers for name in layer.origin]
    assert len(origins) == len(set(origins))
    assert set(origins) <= {layer.name for layer in before.layers}


def types(graph: Graph) -> list[str]:
    """Layer types in order, without the inputs."""
    return [layer.type for layer in graph.layers if not layer.source]


def origins(graph: Graph) -> list[tuple[str, ...]]:
    """What each layer stands for, without the inputs."""
    return [layer.origin for layer in graph.layers if not layer.source]
