"""Run the cases of onnx.backend.test: what passes, what is refused, and what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import chai
from chai.errors import ChaiError, UnsupportedNodes

Array = np.ndarray


@dataclass(frozen=True)
class Outcome:
    """``verdict`` is pass, refused, wrong or crash; ``reason`` says why it is no pass."""

    verdict: str
    reason: str = ""


def node_cases() -> list[Any]:
    """All node cases of the installed onnx; the warnings of its generator are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return load_model_tests(kind="node")


def arrays(values: Sequence[Any]) -> list[Any]:
    """The values of a data set as arrays, where they are tensors."""
    from onnx import TensorProto, numpy_helper

    return [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in values]


def exported_cases() -> Iterator[tuple[str, Any, list[Any], list[Any]]]:
    """The networks of onnx's folders pytorch-*, each with its first inputs and outputs."""
    import onnx
    import onnx.backend.test
    from onnx import numpy_helper

    for path in sorted((Path(onnx.backend.test.__file__).parent / "data").glob("pytorch-*/*/model.onnx")):
        data = path.parent / "test_data_set_0"
        inputs, outputs = (
            [numpy_helper.to_array(onnx.load_tensor(str(f))) for f in sorted(data.glob(f"{kind}_*.pb"))]
            for kind in ("input", "output")
        )
        yield path.parent.name, onnx.load(path), inputs, outputs


def wholes(values: Sequence[Any]) -> bool:
    """Whether all are arrays of float32, whole numbers or truth values, and not all of float32."""
    kinds = [value.dtype.kind if isinstance(value, (np.ndarray, np.generic)) else "?" for value in values]
    names = [str(value.dtype) for value in values if isinstance(value, (np.ndarray, np.generic))]
    plain = len(names) == len(values) and set(names) <= {"float32", "int64", "int32", "bool"}
    return plain and not all(kind == "f" for kind in kinds)


def floats(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (np.ndarray, np.generic)) and value.dtype == np.float32 for value in values)


def outcome(model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Outcome:
    """Feed what is float32, and give the rest as constants of the file; if that is refused, feed the first input alone."""
    last = Outcome("refused", "no input is fed")
    for fed in _ways(inputs):
        last = _run(model, inputs, outputs, fed)
        if last.verdict != "refused":
            return last
    return last


def _ways(inputs: Sequence[Any]) -> Iterator[set[int]]:
    numbers = {i for i, value in enumerate(inputs) if floats([value])}
    if numbers:
        yield numbers
        if len(numbers) > 1:
            yield {min(numbers)}


def _run(model: Any, inputs: Sequence[Any], outputs: Sequence[Any], fed: set[int]) -> Outcome:
    from onnx import ModelProto, numpy_helper

    changed = ModelProto()
    changed.CopyFrom(model)
    feeds = {}
    known = {tensor.name for tensor in model.graph.initializer}
    for i, (value, declared) in enumerate(zip(inputs, [v for v in model.graph.input if v.name not in known])):
        if i in fed:
            feeds[declared.name] = np.asarray(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            try:
                changed.graph.initializer.append(numpy_helper.from_array(np.asarray(value), declared.name))
            except Exception as error:  # a type that onnx does not write, as of texts
                return Outcome("refused", f"not written by onnx: {type(error).__name__}")
        elif value is not None:
            return Outcome("refused", "an input that is no tensor")
    try:
        with chai.Net(changed.SerializeToString(), device="float") as net:
            result = net.forward(**{name: value for name, value in feeds.items() if name in net.inputs})
            values = [result[name] for name in net.outputs]
    except UnsupportedNodes as error:
        return Outcome("refused", str(error.nodes[0]["reason"]))
    except ChaiError as error:
        return Outcome("refused", error.message)
    except Exception as error:
        return Outcome("crash", f"{type(error).__name__}: {error}")
    return _compared(values, outputs)


def _compared(values: Sequence[Array], outputs: Sequence[Any]) -> Outcome:
    for i, (value, reference) in enumerate(zip(values, outputs)):
        reference = np.asarray(reference)
        if value.shape != reference.shape:
            return Outcome("wrong", f"output {i} is {value.shape}, expected {reference.shape}")
        reference = reference.astype(np.float32)
        if not np.allclose(value, reference, rtol=1e-4, atol=1e-4, equal_nan=True):
            worst = float(np.abs(value - reference).max())
            return Outcome("wrong", f"output {i} differs by {worst:g}")
    return Outcome("pass")
