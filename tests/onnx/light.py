"""The light models of the onnx wheel, with random weights in place of the constants that they have."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .compared import references

Array = np.ndarray


def light_models() -> list[Path]:
    """The paths of the nine models."""
    import onnx.backend.test

    return sorted((Path(onnx.backend.test.__file__).parent / "data" / "light").glob("*.onnx"))


def with_weights(path: Path) -> Any:
    """The model with random weights that keep blobs near 1."""
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
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:  # a few normalisations are still the trained ones, of other weights than these
        for i, name in enumerate(node.input[1:] if node.op_type == "BatchNormalization" else (), 1):
            values = drawn(rng, tuple(tensors[name].dims), node.op_type, i)
            tensors[name].CopyFrom(numpy_helper.from_array(values, name))
    normalise(model, picture(model, seed=1))
    return model


def picture(model: Any, seed: int) -> dict[str, Array]:
    """Random numbers for the model's input."""
    known = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in known)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(seed).standard_normal(shape, np.float32)}


def drawn(rng: np.random.Generator, shape: tuple[int, ...], operator: str, index: int) -> Array:
    """Weights for the input of an operator: scales and variances above 0, others by their number of products."""
    if operator == "BatchNormalization" and index in (1, 4):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) < 2:
        return rng.normal(0, 0.1, shape).astype(np.float32)
    products = prod(shape[1:]) if operator == "Conv" else shape[-1]
    return (rng.standard_normal(shape, np.float32) * np.float32((2 / products) ** 0.5)).astype(np.float32)


def normalise(model: Any, feeds: dict[str, Array]) -> None:
    """Let batch normalisations divide about by the root of the mean square that their inputs have for one image.

    Not by each channel's deviation: random layers see nearly the same at all places, and to enlarge such small differences layer
    by layer would enlarge rounding errors with them.
    """
    import onnx
    from onnx import helper, numpy_helper

    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    norms = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    if not norms:
        return
    measuring = onnx.ModelProto()
    measuring.CopyFrom(model)
    graph = measuring.graph
    for values in (graph.node, graph.initializer, graph.input):
        del values[:]
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            x, variance = node.input[0], node.input[4]
            square = helper.make_node("Mul", [x, x], [f"{variance}/square"])
            mean = helper.make_node("ReduceMean", [f"{variance}/square"], [f"{variance}/mean"], keepdims=0)
            graph.node.extend(
                [square, mean, helper.make_node("Mul", [f"{variance}/mean", f"{variance}/drawn"], [variance])]
            )
        graph.node.append(node)
    graph.initializer.extend(model.graph.initializer)
    for tensor in graph.initializer:
        tensor.name += "/drawn" if tensor.name in norms else ""
    graph.input.extend(value for value in model.graph.input if value.name not in norms)
    blobs = references(measuring, **feeds)
    for variance in norms:
        tensors[variance].CopyFrom(numpy_helper.from_array(blobs[variance], variance))
