"""Files of onnxruntime's quantiser: they load, and have its numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai

from .networks import NETWORKS
from .test_quantised import MICROSOFT, Array, refusal

QUANTISED = [name for name in NETWORKS if name != "warped"]  # of which its quantiser loses a blob
IMAGES = np.random.default_rng(0).normal(0, 1, (16, 3, 32, 32)).astype(np.float32)
# Of the largest output: the rounding of some dozen layers, in float32 on the one side and in codes on the other
NEAR = 0.1


def quantised(folder: Path, name: str, operators: bool, activations: str, weights: str, symmetric: bool) -> Path:
    """The file of quantize_static with a scale per channel of the weights."""
    quantization = pytest.importorskip("onnxruntime.quantization", reason="onnxruntime is not installed")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.images = iter(IMAGES)

        def get_next(self) -> dict[str, Array] | None:
            image = next(self.images, None)
            return None if image is None else {"input": image[None]}

    source, path = folder / "float.onnx", folder / "quantised.onnx"
    source.write_bytes(NETWORKS[name]())
    quantization.quantize_static(
        source,
        path,
        Reader(),
        quant_format=quantization.QuantFormat.QOperator if operators else quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType[activations],
        weight_type=quantization.QuantType[weights],
        per_channel=True,
        extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
    )
    return path


@pytest.mark.extras
@pytest.mark.parametrize("operators", [False, True], ids=["qdq", "qoperator"])
@pytest.mark.parametrize(("activations", "weights"), [("QInt8", "QInt8"), ("QUInt8", "QInt8"), ("QUInt8", "QUInt8")])
@pytest.mark.parametrize("name", QUANTISED)
def test_numbers_of_onnxruntime(tmp_path: Path, name: str, operators: bool, activations: str, weights: str) -> None:
    """With symmetric activations every file loads; float and fixed point are near what onnxruntime computes."""
    path = quantised(tmp_path, name, operators, activations, weights, True)
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = onnxruntime.SessionOptions()
    if not operators or activations == "QUInt8":  # without VNNI their sums saturate; QGemm of QInt8 has no other way
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(path, options)
    expected = np.concatenate([session.run(None, {"input": x[None]})[0] for x in IMAGES[:4]])
    for device in ("float", "emulator"):
        with chai.Net(path, device=device) as net:
            (y,) = net.forward(input=IMAGES[:4]).values()
            convolutions = [layer.name for layer in net.graph.layers if layer.type == "Convolution"]
            if device == "emulator" and name != "transformer":  # whose convolution has a stride of 8
                assert net.calibrated and all(net.partition.engine(layer) == "fpga" for layer in convolutions)
        assert np.abs(y - expected).max() < NEAR * np.abs(expected).max()
        assert np.corrcoef(y.reshape(-1), expected.reshape(-1))[0, 1] > 0.99


@pytest.mark.extras
@pytest.mark.parametrize("operators", [False, True], ids=["qdq", "qoperator"])
@pytest.mark.parametrize("activations", ["QInt8", "QUInt8"])
def test_other_zero_points_are_refused_by_operator(tmp_path: Path, operators: bool, activations: str) -> None:
    """The quantiser's default, activations whose zero point lies anywhere."""
    error = refusal(quantised(tmp_path, "resnet18", operators, activations, "QInt8", False).read_bytes())
    listed = {entry["operator"] for entry in error.nodes}
    assert listed <= {"QuantizeLinear", "QLinearConv", *(f"{MICROSOFT}.{n}" for n in ("QLinearAdd", "QGemm"))} | {
        f"{MICROSOFT}.QLinearGlobalAveragePool"
    }
    assert all("zero point is" in entry["reason"] for entry in error.nodes)
    assert "ActivationSymmetric" in str(error.hint)
