"""The light models of the onnx wheel, with random weights in place of the constants that they have."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray


def light_models() -> list[Path]:
    """The paths of the nine models."""
    import onnx.backend.test

    return sorted((Path(onnx.backend.test.__file__).parent / "data" / "light").glob("*.onnx"))


def with_weights(path: Path) -> Any:
    """The model with random weights of a size that keeps blobs near 1."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    graph, rng = model.graph, np.random.default_rng(len(path.stem))
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    readers: dict[str, tuple[str, int]] = {}
    for node in graph.node:
        for i, name in enumerate(node.input):
            readers.setdefault(name, (node.op_type, i))
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(map(int, shapes[node.input[0]]))
        values = drawn(rng, shape, *readers.get(node.output[0], ("", 0)))
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    return model


def drawn(rng: np.random.Generator, shape: tuple[int, ...], operator: str, index: int) -> Array:
    """Weights for the input of an operator: scales and variances above 0, others by their number of products."""
    if operator == "BatchNormalization" and index in (1, 4):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) < 2:
        return rng.normal(0, 0.1, shape).astype(np.float32)
    products = prod(shape[1:]) if operator == "Conv" else shape[-1]
    return (rng.standard_normal(shape, np.float32) * np.float32((2 / products) ** 0.5)).astype(np.float32)


def inner_blobs(model: Any) -> Any:
    """The model with every blob as an output, for a runtime that has shapes of its own."""
    import onnx

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    known = {value.name for value in changed.graph.output}
    names = [name for node in changed.graph.node for name in node.output if name and name not in known]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return changed
