"""What a manifest excludes is neither encoded nor decoded: a file from a stranger may say anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.overlay import Overlay
from chai.tasks.affine import Affine
from chai.tasks.conv import Conv
from chai.tasks.window import Window
from tests.codegen.equality import equal

from .cases import Z2, Case, average, conv, copy, eltwise, lrn

POINT = Window((1, 1), (1, 1), (0, 0))
SCALED = Requantization(np.array(5), 7, -32, 31)
BUFFERS = Z2.buffers


def tight(kind: str = "", overlay: dict[str, Any] | None = None, **limits: Any) -> Overlay:
    """The default overlay with other limits of a kind, or other values of its own."""
    sections = [
        section._replace(limits=tuple({**dict(section.limits), **(limits if section.kind == kind else {})}.items()))
        for section in Z2.tasks
    ]
    return replace(Z2, tasks=tuple(sections), **(overlay or {}))


def grouped() -> Case:
    case = conv(group=2, weights=np.ones((16, 8, 2, 1), np.int8), bias=np.arange(16), requantization=SCALED)
    shapes = {"in": (2, 16, 5, 7), "out": (2, 16, 4, 4), "concat": (2, 48, 4, 4)}
    return replace(case, shapes=shapes)


def depthwise(kind: type[Conv] = Conv, window: Window = POINT) -> Case:
    leaky = SCALED._replace(negative=np.array(3))
    task = kind(("a",), "c", ("each",), np.ones((20, 1, *window.kernel), np.int8), np.arange(20), window, 20, leaky)
    return replace(copy(first=0), task=task, shapes={"a": (1, 20, 2, 3), "c": (1, 20, *window.sizes((2, 3)))})


def pooled(kernel: tuple[int, int], pad: int = 0) -> Case:
    window = Window(kernel, (2, 2), (pad, pad))
    out = window.sizes((4, 6))
    case = average(window=window, out=out, requantization=SCALED._replace(low=-128))
    return replace(case, shapes={"a": (1, 20, 4, 6), "c": (1, 20, *out)})


LEAKY = conv(requantization=SCALED._replace(negative=np.array([[[1]], [[2]]])))


@pytest.mark.parametrize(
    ("case", "fits", "short", "reason"),
    [
        (conv(), tight("conv", kernel_max=2), tight("conv", kernel_max=1), "kernel 2 is more than the overlay's 1"),
        (conv(), tight("conv", stride_max=2), tight("conv", stride_max=1), "stride 2 is more than the overlay's 1"),
        (conv(), tight("conv", pad_max=1), tight("conv", pad_max=0), "pad 1 is more than the overlay's 0"),
        (conv(), tight("conv", dilation_max=3), tight("conv", dilation_max=2), "dilation 3 is more than the"),
        (conv(), tight("conv", size_max=7), tight("conv", size_max=6), "size 7 is more than the overlay's 6"),
        (conv(), tight("conv", channels_max=3), tight("conv", channels_max=2), "channels 3 is more than the"),
        (conv(), tight("conv", leaky=False), tight(overlay={"batch_max": 1}), "2 images are more than the overlay's 1"),
        (conv(), Z2, tight(overlay={"requant": Z2.requant._replace(shift_max=6)}), "shift: 7, expected at most 6"),
        (conv(), Z2, tight(overlay={"requant": Z2.requant._replace(mult_bits=2)}), "multiplier = 6: expected 2 bits"),
        (
            conv(),
            tight(overlay={"buffers": BUFFERS._replace(input=BUFFERS.input._replace(depth=28))}),
            tight(overlay={"buffers": BUFFERS._replace(input=BUFFERS.input._replace(depth=27))}),
            "4 input rows take 448 bytes, the overlay stages 432",
        ),
        (LEAKY, Z2, tight("conv", leaky=False), "the overlay has no leaky conv"),
        (grouped(), tight("conv", group_max=2), tight("conv", group_max=1), "group 2 is more than the overlay's 1"),
        (depthwise(), tight("conv", kernel_max=1), tight("conv", depthwise=False), "the overlay has no depthwise conv"),
        (
            depthwise(Affine),
            tight("conv", leaky=False),
            tight("affine", leaky=False),
            "the overlay has no leaky affine",
        ),
        (depthwise(Affine), tight("affine", size_max=3), tight("affine", size_max=2), "size 3 is more than the"),
        (pooled((2, 3), 1), tight("pool", kernel_max=3), tight("pool", kernel_max=2), "kernel 3 is more than the"),
        (pooled((2, 3), 1), tight("pool", pad_max=1), tight("pool", pad_max=0), "pad 1 is more than the overlay's 0"),
        (pooled((2, 3)), tight("pool", stride_max=2), tight("pool", stride_max=1), "stride 2 is more than the"),
        (
            pooled((4, 6)),
            tight("pool", kernel_max=1),
            tight("pool", global_max=5),
            "global 6 is more than the overlay's 5",
        ),
        (pooled((2, 3)), tight("pool", methods=("AVE",)), tight("pool", methods=("MAX",)), "the overlay has no AVE"),
        (
            pooled((3, 3)),
            tight(overlay={"buffers": BUFFERS._replace(pool=BUFFERS.pool._replace(depth=4))}),
            tight(overlay={"buffers": BUFFERS._replace(pool=BUFFERS.pool._replace(depth=3))}),
            "its unfinished windows take 4 columns, the overlay holds 3",
        ),
        (
            pooled((3, 3)),
            tight(overlay={"accumulator_bits": 13}),
            tight(overlay={"accumulator_bits": 12}),
            "an average over 9 pixels could leave the accumulator",
        ),
        (eltwise(), tight("eltwise", operations=("SUM",)), tight("eltwise", operations=("MAX",)), "overlay has no SUM"),
        (eltwise(negative=(1, 2)), Z2, tight("eltwise", leaky=False), "the overlay has no leaky eltwise"),
        (lrn(), tight("lrn", local_size_max=5), tight("lrn", local_size_max=4), "local_size 5 is more than the"),
        (copy(), tight("copy", channels_max=40), tight("copy", channels_max=39), "channels 40 is more than the"),
    ],
)
def test_what_the_manifest_excludes(case: Case, fits: Overlay, short: Overlay, reason: str) -> None:
    """Neither encoded nor decoded; what its limits just allow is."""
    descriptor, constants = case.encode(fits)
    assert equal(case.decode(descriptor, constants, fits), case.task)
    for refused in (lambda: case.decode(descriptor, constants, short), lambda: case.encode(short)):
        with pytest.raises(DeviceError) as error:
            refused()
        assert reason in error.value.message


def test_what_no_limit_is_about() -> None:
    """A descriptor could say it, and no Task is like it."""
    for task in (depthwise(Affine, Window((2, 1), (1, 1), (0, 0))), replace(depthwise(Affine), task=_dense())):
        with pytest.raises(DeviceError, match="more than one multiplication and one addition per element"):
            task.encode()
    split = conv(group=2, weights=np.ones((16, 3, 2, 1), np.int8), bias=np.arange(16), requantization=SCALED)
    shapes = {"in": (2, 6, 5, 7), "out": (2, 16, 4, 4), "concat": (2, 48, 4, 4)}
    with pytest.raises(DeviceError, match="groups of 3 inputs and 8 outputs are not whole words of 8"):
        replace(split, shapes=shapes).encode()
    with pytest.raises(DeviceError, match="a pooling has no dilation"):
        average(window=Window((2, 2), (2, 2), (0, 0), (1, 2))).encode()
    wide = average(window=POINT, out=(5, 6), requantization=SCALED)
    with pytest.raises(DeviceError, match="its last window is outside the image"):
        replace(wide, shapes={**wide.shapes, "c": (1, 20, 5, 6)}).encode()


def _dense() -> Affine:
    return Affine(("a",), "c", ("each",), np.ones((20, 20, 1, 1), np.int8), np.arange(20), POINT, 1, SCALED)
