"""ONNX files of PyTorch's modules, by either exporter, with weights from a seed that keep blobs near 1."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

EXPORTERS = pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])


def settle(module: Any, example: Any) -> None:
    """Draw the weights by the number of their products, and let normalisations scale their inputs for this example to about 1.

    They divide by the root of the mean square, not by each channel's deviation: random layers see nearly the same at all places,
    and to enlarge such small differences layer by layer would enlarge rounding errors with them.
    """
    import torch
    from torch import nn

    def measure(norm: Any, inputs: Any) -> None:
        square = (inputs[0] ** 2).mean()
        norm.running_var.uniform_(0.5, 1.5).mul_(square)
        norm.running_mean.normal_(0, 0.1).mul_(square.sqrt())

    module.eval()
    hooks = []
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, 0, 0.1)
            hooks.append(part.register_forward_pre_hook(measure))
    with torch.no_grad():
        module(example)
    for hook in hooks:
        hook.remove()


def export(module: Any, example: Any, path: Path, dynamo: bool, name: str = "input") -> Any:
    """Write a module with a batch that is free, as far as the exporter says so, and return the ModelProto."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    options: dict[str, Any] = {"opset_version": 17, "dynamic_axes": {name: {0: "batch"}}}
    if dynamo:
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
        options = {"opset_version": 20}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (example,), str(path), input_names=[name], dynamo=dynamo, **options)
    return onnx.load(path)
