"""Published networks that used to be split, in full size or narrow, with weights from a seed.

python -m tests.onnx.published FOLDER        write them, for tools/segments.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from .networks import Writer


def xception(width: int = 1, size: int = 299, classes: int = 1000) -> bytes:
    """Xception (Chollet 2017): a ReLU before each depthwise convolution, whose input the shortcut reads too.

    Batch normalisations are folded. ``width`` divides the numbers of channels.
    """
    w = Writer()

    def separable(x: str, inputs: int, outputs: int) -> str:
        return w.conv(w.conv(x, inputs, inputs, 3, group=inputs), inputs, outputs)

    def block(x: str, inputs: int, widths: tuple[int, ...], first: bool = True) -> str:
        y, c = x, inputs
        for i, outputs in enumerate(widths):
            y, c = separable(w.add("Relu", y) if first or i else y, c, outputs), outputs
        y = w.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        return w.add("Add", y, w.conv(x, inputs, c, 1, 2))

    c32, c64, c128, c256, c728, c1024, c1536, c2048 = (c // width for c in (32, 64, 128, 256, 728, 1024, 1536, 2048))
    x = w.add("Relu", w.conv("input", 3, c32, 3, 2, pad=0))
    x = w.add("Relu", w.conv(x, c32, c64, 3, pad=0))
    x = block(x, c64, (c128, c128), first=False)
    x = block(x, c128, (c256, c256))
    x = block(x, c256, (c728, c728))
    for _ in range(8):
        y = x
        for _ in range(3):
            y = separable(w.add("Relu", y), c728, c728)
        x = w.add("Add", y, x)
    x = block(x, c728, (c728, c1024))
    x = w.add("Relu", separable(x, c1024, c1536))
    x = w.add("Relu", separable(x, c1536, c2048))
    return w.classified(x, c2048, classes, size)


def openpose(width: int = 1, size: int = 368) -> bytes:
    """OpenPose's network of 18 points (Cao et al. 2017): six stages of two branches, whose 38 and 19 maps are joined with others.

    ``width`` divides the numbers of channels, but for those of the maps.
    """
    w = Writer()
    c64, c128, c256, c512 = (c // width for c in (64, 128, 256, 512))

    def conv(x: str, inputs: int, outputs: int, kernel: int = 3) -> str:
        return w.add("Relu", w.conv(x, inputs, outputs, kernel))

    x, c = "input", 3
    for outputs in (c64, c64, 0, c128, c128, 0, c256, c256, c256, c256, 0, c512, c512, c256, c128):
        if outputs:
            x, c = conv(x, c, outputs), outputs
        else:
            x = w.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4)
    features, joined, channels = x, x, c
    for stage in range(6):
        branches = []
        for maps in (38, 19):
            y, c = joined, channels
            for _ in range(5 if stage else 3):
                y, c = conv(y, c, c128, 7 if stage else 3), c128
            last = c128 if stage else c512
            branches.append(w.conv(conv(y, c, last, 1), last, maps))
        joined, channels = w.add("Concat", *branches, features, axis=1), 38 + 19 + c128
    return w.model(w.add("Concat", *branches, axis=1), size)


NETWORKS: dict[str, Callable[[], bytes]] = {"xception": xception, "openpose": openpose}


def main(folder: Path) -> None:
    """Write all networks."""
    for name, network in NETWORKS.items():
        (folder / f"{name}.onnx").write_bytes(network())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
