"""YOLOv5 with anchors, by its published architecture (release 6), and a narrow one as files.

python -m tests.onnx.yolov5      # write tests/onnx/files/yolov5_*.onnx; needs torch, onnxscript, onnx and onnxruntime
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

FILES = Path(__file__).parent / "files"
# width and height in pixels of the three anchors of maps at 1/8, 1/16 and 1/32 of the image's size
ANCHORS = [
    [(10, 13), (16, 30), (33, 23)],
    [(30, 61), (62, 45), (59, 119)],
    [(116, 90), (156, 198), (373, 326)],
]
STRIDES = 8, 16, 32


class Unit(nn.Sequential):
    """Convolution, normalisation, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, pad: int | None = None) -> None:
        pad = kernel // 2 if pad is None else pad
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, pad, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU())


class Residual(nn.Module):
    """Two units, and the sum of what comes in and out."""

    def __init__(self, channels: int, adds: bool) -> None:
        super().__init__()
        self.units, self.adds = nn.Sequential(Unit(channels, channels), Unit(channels, channels, 3)), adds

    def forward(self, x: Any) -> Any:
        return x + self.units(x) if self.adds else self.units(x)


class Stage(nn.Module):
    """C3: one half of the channels goes through residuals, the other past them."""

    def __init__(self, inputs: int, outputs: int, count: int, adds: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.through = nn.Sequential(Unit(inputs, half), *(Residual(half, adds) for _ in range(count)))
        self.past, self.join = Unit(inputs, half), Unit(2 * half, outputs)

    def forward(self, x: Any) -> Any:
        return self.join(torch.cat([self.through(x), self.past(x)], 1))


class Pyramid(nn.Module):
    """SPPF: pools of 5, 9 and 13 pixels as three of 5, one after the other."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow, self.pool = Unit(channels, channels // 2), nn.MaxPool2d(5, 1, 2)
        self.join = Unit(channels // 2 * 4, channels)

    def forward(self, x: Any) -> Any:
        maps = [self.narrow(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.join(torch.cat(maps, 1))


class Detect(nn.Module):
    """For each anchor at each place: centre, width and height in pixels, whether there is an object, and its classes."""

    def __init__(self, channels: list[int], classes: int) -> None:
        super().__init__()
        self.numbers = 5 + classes
        self.heads = nn.ModuleList(nn.Conv2d(c, 3 * self.numbers, 1) for c in channels)

    def forward(self, maps: list[Any]) -> Any:
        rows = []
        for head, x, anchors, stride in zip(self.heads, maps, ANCHORS, STRIDES):
            y = head(x)
            n, _, h, w = y.shape
            y = y.view(n, 3, self.numbers, h, w).permute(0, 1, 3, 4, 2).sigmoid()
            down, right = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            places = torch.stack([right, down], 2).float().view(1, 1, h, w, 2)
            centre = (y[..., :2] * 2 - 0.5 + places) * stride
            size = (y[..., 2:4] * 2) ** 2 * torch.tensor(anchors).float().view(1, 3, 1, 1, 2)
            rows.append(torch.cat([centre, size, y[..., 4:]], 4).view(n, -1, self.numbers))
        return torch.cat(rows, 1)


class YoloV5(nn.Module):
    """YOLOv5n has width 1/4 and depth 1/3; channels are rounded up to multiples of ``step``."""

    def __init__(self, width: float = 0.25, depth: float = 1 / 3, classes: int = 80, step: int = 8) -> None:
        super().__init__()
        a, b, c, d, e = (ceil(channels * width / step) * step for channels in (64, 128, 256, 512, 1024))
        one, two, three = (max(round(count * depth), 1) for count in (3, 6, 9))
        self.eighth = nn.Sequential(
            Unit(3, a, 6, 2, 2), Unit(a, b, 3, 2), Stage(b, b, one), Unit(b, c, 3, 2), Stage(c, c, two)
        )
        self.sixteenth = nn.Sequential(Unit(c, d, 3, 2), Stage(d, d, three))
        self.last = nn.Sequential(Unit(d, e, 3, 2), Stage(e, e, one), Pyramid(e), Unit(e, d))
        self.twice = nn.Upsample(scale_factor=2, mode="nearest")
        self.upper, self.narrow = Stage(2 * d, d, one, False), Unit(d, c)
        self.small, self.to_middle = Stage(2 * c, c, one, False), Unit(c, c, 3, 2)
        self.middle, self.to_large = Stage(2 * c, d, one, False), Unit(d, d, 3, 2)
        self.large, self.detect = Stage(2 * d, e, one, False), Detect([c, d, e], classes)

    def forward(self, x: Any) -> Any:
        eighth = self.eighth(x)
        sixteenth = self.sixteenth(eighth)
        deep = self.last(sixteenth)
        wide = self.narrow(self.upper(torch.cat([self.twice(deep), sixteenth], 1)))
        small = self.small(torch.cat([self.twice(wide), eighth], 1))
        middle = self.middle(torch.cat([self.to_middle(small), wide], 1))
        large = self.large(torch.cat([self.to_large(middle), deep], 1))
        return self.detect([small, middle, large])


def main() -> None:
    """Write the files: weights have few digits, so that they pack well, and no notes of where nodes come from."""
    import onnx

    from .compared import assert_every_blob
    from .exported import export, settle

    torch.manual_seed(0)
    module = YoloV5(1 / 32, 1 / 3, 2, 2)
    settle(module, torch.rand(2, 3, 64, 96))
    for parameter in module.state_dict().values():
        if parameter.is_floating_point():
            parameter.copy_((parameter * 256).round() / 256)
    x = np.random.default_rng(1).random((1, 3, 64, 96), np.float32)
    for dynamo in (False, True):
        path = FILES / f"yolov5_{'dynamo' if dynamo else 'torchscript'}.onnx"
        model = export(module, torch.rand(1, 3, 64, 96), path, dynamo, "images")
        del model.graph.value_info[:], model.metadata_props[:]
        for node in model.graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
        onnx.save(model, path)
        for other in FILES.glob(f"{path.name}.*"):
            other.unlink()
        (y,) = assert_every_blob(model, path, images=x)
        np.save(path.with_suffix(".npy"), y)


if __name__ == "__main__":
    main()
