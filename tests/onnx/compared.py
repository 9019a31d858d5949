"""Compare a network with onnxruntime, blob by blob."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import chai

Array = np.ndarray
RTOL = ATOL = 1e-4


def inner_blobs(model: Any) -> Any:
    """The model with every blob as an output, for a runtime that has shapes of its own."""
    import onnx

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    known = {value.name for value in changed.graph.output}
    names = [name for node in changed.graph.node for name in node.output if name and name not in known]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return changed


def references(model: Any, **feeds: Array) -> dict[str, Array]:
    """All blobs of float32 that onnxruntime computes node by node, as the file says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3  # of nodes that nothing reads
    session = onnxruntime.InferenceSession(inner_blobs(model).SerializeToString(), options)
    names = [output.name for output in session.get_outputs() if output.type == "tensor(float)"]
    return dict(zip(names, session.run(names, feeds)))


def assert_every_blob(model: Any, file: Path | bytes, **feeds: Array) -> list[Array]:
    """Assert that the outputs, and all blobs of which chai keeps the names, are onnxruntime's, and of a size that shows it.

    ``model`` is the ModelProto of ``file``, which chai reads. Returns the outputs.
    """
    expected = references(model, **feeds)
    with chai.Net(file, device="float", keep="all") as net:
        net.forward(**feeds)
        assert set(net.outputs) <= set(expected)
        blobs = {name: net.blobs[name] for name in net.blobs if name in expected and name not in feeds}
        outputs = net.outputs
    written = {name for node in model.graph.node for name in node.output} & set(expected)
    assert len(blobs) > len(written) / 3  # others are constants, or parts of what one layer computes
    for name, value in blobs.items():
        np.testing.assert_allclose(value, expected[name], RTOL, ATOL, err_msg=name)
    sizes = [float(np.abs(value).max()) for value in blobs.values()]
    assert 0.1 < np.median(sizes) < 100 and np.quantile(sizes, 0.02) > 0.01, sorted(sizes)
    return [expected[name] for name in outputs]
