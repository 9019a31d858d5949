"""Networks as PyTorch exports them, with weights from a seed: the structures of ResNet-18 and MobileNetV2, narrow."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .common import model, node

Array = np.ndarray


class Writer:
    """Nodes and tensors of a file under construction; a name stands for a blob, or for one of these."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[bytes] = []
        self.tensors: dict[str, Any] = {}
        self.count = 0

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        name = f"/{operator.lower()}_{self.count}"
        self.nodes.append(node(operator, inputs, [f"{name}_output_0"], name, **attributes))
        return f"{name}_output_0"

    def tensor(self, value: Any) -> str:
        name = f"onnx::{len(self.tensors)}"
        self.tensors[name] = value
        return name

    def drawn(self, *shape: int) -> str:
        spread = (2 / prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1
        return self.tensor((self.rng.standard_normal(shape) * spread).astype(np.float32))

    def conv(
        self,
        x: str,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        group: int = 1,
        bias: bool = True,
        pad: int | None = None,
    ) -> str:
        weights = [self.drawn(outputs, inputs // group, kernel, kernel), *([self.drawn(outputs)] if bias else [])]
        pads = [kernel // 2 if pad is None else pad] * 4
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads, "group": group}
        return self.add("Conv", x, *weights, dilations=[1, 1], **sizes)

    def norm(self, x: str, channels: int) -> str:
        scale, variance = (self.tensor(self.rng.uniform(0.5, 1.5, channels).astype(np.float32)) for _ in range(2))
        return self.add(
            "BatchNormalization", x, scale, self.drawn(channels), self.drawn(channels), variance, epsilon=1e-5
        )

    def classified(self, x: str, channels: int, classes: int, size: int = 32) -> bytes:
        flat = self.add("Flatten", self.add("GlobalAveragePool", x), axis=1)
        y = self.add("Gemm", flat, self.drawn(classes, channels), self.drawn(classes), alpha=1.0, beta=1.0, transB=1)
        return self.model(y, size)

    def model(self, y: str, size: int = 32) -> bytes:
        return model(self.nodes, {"input": ("batch", 3, size, size)}, [y], self.tensors)


def resnet18(width: int = 8, classes: int = 10, size: int = 32) -> bytes:
    """Blocks of two convolutions and a sum, batch normalisation apart."""
    w, c = Writer(), width
    x = w.add("Relu", w.norm(w.conv("input", 3, c, 7, 2, bias=False), c))
    x = w.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=0)
    for stage in range(4):
        for block in range(2):
            outputs, stride = width << stage, 2 if stage and not block else 1
            y = w.add("Relu", w.norm(w.conv(x, c, outputs, 3, stride, bias=False), outputs))
            y = w.norm(w.conv(y, outputs, outputs, 3, bias=False), outputs)
            short = x if stride == 1 and c == outputs else w.norm(w.conv(x, c, outputs, 1, stride, bias=False), outputs)
            x, c = w.add("Relu", w.add("Add", y, short)), outputs
    return w.classified(x, c, classes, size)


def mobilenet_v2(width: int = 8, classes: int = 10) -> bytes:
    """Inverted residuals, with ReLU6 as a Clip whose bounds are constants."""
    w = Writer()
    low, high = w.tensor(np.float32(0)), w.tensor(np.float32(6))
    x, c = w.add("Clip", w.conv("input", 3, width, 3, 2), low, high), width
    for outputs, stride in ((width, 1), (2 * width, 2), (2 * width, 1), (3 * width, 2), (3 * width, 1)):
        wide = w.add("Clip", w.conv(x, c, 4 * c), low, high)
        deep = w.add("Clip", w.conv(wide, 4 * c, 4 * c, 3, stride, group=4 * c), low, high)
        y = w.conv(deep, 4 * c, outputs)
        x, c = w.add("Add", x, y) if stride == 1 and c == outputs else y, outputs
    return w.classified(x, c, classes)


def shufflenet(width: int = 8, classes: int = 10) -> bytes:
    """A channel shuffle, written with the sizes of the blob, and a split."""
    w, c = Writer(), 2 * width
    x = w.add("Relu", w.conv("input", 3, c, 3, 2))
    first, second = f"{x}/a", f"{x}/b"
    w.nodes.append(node("Split", [x, w.tensor(np.array([width, width]))], [first, second], "/split", axis=1))
    y = w.add("Concat", first, w.add("Relu", w.conv(second, width, width, 3)), axis=1)
    shape = w.add("Shape", y)
    n, h, across = (w.add("Gather", shape, w.tensor(np.array(i)), axis=0) for i in (0, 2, 3))
    axis, two, half = w.tensor(np.array([0])), w.tensor(np.array([2])), w.tensor(np.array([width]))
    parts = [w.add("Unsqueeze", size, axis) for size in (n, h, across)]
    grouped = w.add("Reshape", y, w.add("Concat", parts[0], two, half, parts[1], parts[2], axis=0))
    swapped = w.add("Transpose", grouped, perm=[0, 2, 1, 3, 4])
    whole = w.tensor(np.array([c]))
    x = w.add("Reshape", swapped, w.add("Concat", parts[0], whole, parts[1], parts[2], axis=0))
    x = w.add("Relu", w.conv(x, c, c, 3))
    return w.classified(x, c, classes)


def yolo_like(width: int = 8) -> bytes:
    """SiLU, a feature pyramid with nearest upsampling, pools side by side, and a head that is reshaped."""
    w = Writer()

    def silu(x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> str:
        y = w.conv(x, inputs, outputs, kernel, stride)
        return w.add("Mul", y, w.add("Sigmoid", y))

    x1 = silu("input", 3, width, 3, 2)
    x2 = silu(x1, width, 2 * width, 3, 2)
    pools = [x2]
    for _ in range(3):
        pools.append(w.add("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    x2 = silu(w.add("Concat", *pools, axis=1), 8 * width, width)
    up = w.add("Resize", x2, "", w.tensor(np.array([1, 1, 2, 2], np.float32)), mode="nearest", nearest_mode="floor",
               coordinate_transformation_mode="asymmetric")  # fmt: skip
    y = silu(w.add("Concat", up, x1, axis=1), 2 * width, 10)
    rows = w.add("Reshape", y, w.tensor(np.array([1, 2, 5, 16, 16])))
    rows = w.add("Transpose", rows, perm=[0, 1, 3, 4, 2])
    out = w.add("Sigmoid", rows)
    return model(w.nodes, {"input": ("batch", 3, 32, 32)}, [out], w.tensors)


def transformer(width: int = 8) -> bytes:
    """One layer of attention over patches: MatMul of two blobs, LayerNormalization, GELU by its parts."""
    w = Writer()
    x = w.conv("input", 3, width, 3, 8)
    x = w.add("Reshape", x, w.tensor(np.array([0, width, -1])))
    x = w.add("Transpose", x, perm=[0, 2, 1])
    scale, bias = w.tensor(w.rng.uniform(0.5, 1.5, width).astype(np.float32)), w.drawn(width)
    y = w.add("LayerNormalization", x, scale, bias, axis=-1)
    q, k, v = (w.add("Add", w.add("MatMul", y, w.drawn(width, width)), w.drawn(width)) for _ in range(3))
    scores = w.add("MatMul", q, w.add("Transpose", k, perm=[0, 2, 1]))
    scores = w.add("Div", scores, w.tensor(np.float32(width**0.5)))
    x = w.add("Add", x, w.add("MatMul", w.add("Softmax", scores, axis=-1), v))
    half = w.add("Div", x, w.tensor(np.float32(2**0.5)))
    share = w.add("Add", w.add("Erf", half), w.tensor(np.float32(1)))
    x = w.add("Mul", w.add("Mul", x, share), w.tensor(np.float32(0.5)))
    return model(w.nodes, {"input": ("batch", 3, 32, 32)}, [w.add("ReduceMean", x, axes=[1], keepdims=0)], w.tensors)


def warped(width: int = 8, classes: int = 10) -> bytes:
    """A map read where convolutions say, pooled with dilations, turned around, and chosen number by number."""
    w = Writer()
    x = w.add("Relu", w.conv("input", 3, width, 3, 2))
    places = w.add("Transpose", w.add("Tanh", w.conv("input", 3, 2, 3, 2)), perm=[0, 2, 3, 1])
    x = w.add("GridSample", x, places, mode="bilinear", padding_mode="border", align_corners=0)
    pooled = w.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 2, 1, 2], dilations=[1, 2], ceil_mode=1)
    start, end, axis, step = (w.tensor(np.array([number])) for number in (-1, -(2**62), 3, -1))
    turned = w.add("Slice", pooled, start, end, axis, step)
    larger = w.add("Greater", pooled, turned)
    y = w.add("Where", larger, w.conv(pooled, width, width), turned)
    return w.classified(y, width, classes)


NETWORKS = {
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "shufflenet": shufflenet,
    "yolo_like": yolo_like,
    "transformer": transformer,
    "warped": warped,
}
