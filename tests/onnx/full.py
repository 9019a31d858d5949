"""Published networks in full size, as exporters write them, with weights from a seed; and the table of docs/from_onnx.md.

python -m tests.onnx.full        print the table
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import chai
from chai.report.layer_rows import LayerRow, placed
from chai.util.table import quantity

from .networks import Writer, resnet18

OVERLAY = "pynq-z2"


def googlenet() -> bytes:
    """Inception v1 without its two LRN layers (Szegedy et al. 2014): pools round up."""
    w = Writer()

    def conv(x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> str:
        return w.add("Relu", w.conv(x, inputs, outputs, kernel, stride))

    def pool(x: str, stride: int = 2, pad: int = 0) -> str:
        return w.add("MaxPool", x, kernel_shape=[3, 3], strides=[stride] * 2, pads=[pad] * 4, ceil_mode=1)

    x = pool(conv("input", 3, 64, 7, 2))
    x = pool(conv(conv(x, 64, 64), 64, 192, 3))
    c = 192
    for stage in (
        [(64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)],
        [
            (192, 96, 208, 16, 48, 64),
            (160, 112, 224, 24, 64, 64),
            (128, 128, 256, 24, 64, 64),
            (112, 144, 288, 32, 64, 64),
            (256, 160, 320, 32, 128, 128),
        ],
        [(256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)],
    ):
        x = pool(x) if c != 192 else x
        for one, reduce3, three, reduce5, five, behind in stage:
            parts = [conv(x, c, one), conv(conv(x, c, reduce3), reduce3, three, 3)]
            parts += [conv(conv(x, c, reduce5), reduce5, five, 5), conv(pool(x, 1, 1), c, behind)]
            x, c = w.add("Concat", *parts, axis=1), one + three + five + behind
    return w.classified(x, c, 1000, 224)


def squeezenet() -> bytes:
    """SqueezeNet 1.1 (Iandola et al. 2016): the scores are an average pool."""
    w = Writer()

    def pool(x: str) -> str:
        return w.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0] * 4, ceil_mode=1)

    def fire(x: str, inputs: int, squeeze: int, expand: int) -> str:
        y = w.add("Relu", w.conv(x, inputs, squeeze))
        sides = [w.add("Relu", w.conv(y, squeeze, expand, kernel)) for kernel in (1, 3)]
        return w.add("Concat", *sides, axis=1)

    x = pool(w.add("Relu", w.conv("input", 3, 64, 3, 2, pad=0)))
    x = pool(fire(fire(x, 64, 16, 64), 128, 16, 64))
    x = pool(fire(fire(x, 128, 32, 128), 256, 32, 128))
    x = fire(fire(fire(fire(x, 256, 48, 192), 384, 48, 192), 384, 64, 256), 512, 64, 256)
    y = w.add("GlobalAveragePool", w.add("Relu", w.conv(x, 512, 1000)))
    return w.model(w.add("Flatten", y, axis=1), 224)


def mobilenet_v2() -> bytes:
    """Sandler et al. 2018, width 1."""
    w = Writer()
    low, high = w.tensor(np.float32(0)), w.tensor(np.float32(6))

    def conv(x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        return w.add("Clip", w.conv(x, inputs, outputs, kernel, stride, group), low, high)

    x, c = conv("input", 3, 32, 3, 2), 32
    for expand, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            step, wide = stride if i == 0 else 1, c * expand
            y = conv(x, c, wide) if expand > 1 else x
            y = w.conv(conv(y, wide, wide, 3, step, wide), wide, outputs)
            x, c = w.add("Add", x, y) if step == 1 and c == outputs else y, outputs
    return w.classified(conv(x, c, 1280), 1280, 1000, 224)


FULL: dict[str, Callable[[], bytes]] = {
    "GoogLeNet without LRN": googlenet,
    "ResNet-18": lambda: resnet18(64, 1000, 224),
    "SqueezeNet 1.1": squeezenet,
    "MobileNetV2": mobilenet_v2,
}


def planned(name: str) -> tuple[list[LayerRow], int]:
    """The rows of a network's layers on the overlay, and its segments."""
    with chai.Net(FULL[name](), device="null", overlay=OVERLAY) as net:
        net.plan()
        return placed(net), len(net.schedule.segments)


def table() -> list[str]:
    """The lines of the table in docs/from_onnx.md."""
    lines = ["| network | MACs | on the overlay | segments | on the host |", "|---|---|---|---|---|"]
    for name in FULL:
        rows, segments = planned(name)
        macs = sum(row.macs or 0 for row in rows)
        share = 100 * sum(row.macs or 0 for row in rows if row.engine == "fpga") / macs
        host = ", ".join(row.type for row in rows if row.engine == "host") or "-"
        lines.append(f"| {name} | {quantity(macs)} | {share:.2f} % | {segments} | {host} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
