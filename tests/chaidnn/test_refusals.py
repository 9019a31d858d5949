"""What CHaiDNN's calls refuse: buffers, images, networks and files that do not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai.chaidnn import (
    inputNormalization,
    io_layer_info,
    kernel_type_e,
    outputWrite,
    xiExec,
    xiInit,
    xiInputRead,
    xiUnpackOutput,
)
from chai.errors import DeviceError, ParseError, PluginError, UsageError

from .common import DIGITS, image_file, write

SIZE = 2 * 64 * 4


@pytest.mark.parametrize(
    ("input", "output", "words"),
    [
        ([], [bytearray(80)], "input: 0 buffers, expected 1"),
        ([bytearray(SIZE)] * 2, [bytearray(80)], "input: 2 buffers, expected 1"),
        ([bytearray(128)], [bytearray(80)], "input: a buffer of 128 bytes, expected 512"),
        ([bytearray(SIZE)], [bytearray(79)], "output: a buffer of 79 bytes, expected 80"),
        ([np.zeros(128)], [bytearray(80)], "input: expected one run of bytes or of float32"),
        ([np.zeros((16, 16), np.float32)[:, ::2]], [bytearray(80)], "input: expected one run"),
        ([bytearray(SIZE)], [bytes(80)], "output: this buffer is read-only"),
        ([[0.0] * 128], [bytearray(80)], "input: expected a buffer, found list"),
        (None, [bytearray(80)], "input: expected a list of buffers, found NoneType"),
        (bytearray(SIZE), [bytearray(80)], "input: expected a list of buffers, found bytearray"),
        ([bytearray(SIZE)], 80, "output: expected a list of buffers, found int"),
    ],
)
def test_buffers_that_do_not_fit(input: Any, output: Any, words: str) -> None:
    handle = xiInit(DIGITS, "digits.prototxt", "digits.caffemodel", io_layer_info(), 2, True, device="float")
    with pytest.raises(UsageError, match=re.escape(words)):
        xiExec(handle, input, output)


def test_images_that_do_not_fit(tmp_path: Path) -> None:
    path, _ = image_file(tmp_path, 9, 12)
    info = io_layer_info(in_channel=3, in_height=8, in_width=9, inlayer_sizebytes=2 * 216 * 4)
    buffers = [bytearray(216 * 4) for _ in range(2)]

    def normalise(
        *paths: Any,
        resize: tuple[int, int] = (8, 9),
        images: int = 2,
        info: Any = info,
        mean: Any = None,
        var: Any = None,
    ) -> None:
        inputNormalization(buffers, *resize, *paths, var is not None, mean, var, images, info)

    with pytest.raises(UsageError, match="crop of 8x9 does not fit into images resized to 8x8"):
        normalise(path, path, resize=(8, 8))
    with pytest.raises(UsageError, match=r"3 images in a call that takes one or two.*buffers\[2:4\]"):
        normalise(path, path, images=3)
    with pytest.raises(UsageError, match="img_path2 is missing"):
        normalise(path, None)
    with pytest.raises(UsageError, match=r"takes no images .*is_first_layer=True"):
        normalise(path, path, info=io_layer_info())
    with pytest.raises(UsageError, match="the mean is 2; expected 3 numbers"):
        normalise(path, path, mean=[1.0, 2.0])
    with pytest.raises(UsageError, match=r"mean_ptr.*: expected numbers"):
        normalise(path, path, mean="104,117,123")
    with pytest.raises(UsageError, match=r"var_ptr.*: expected numbers"):
        normalise(path, path, var="1")
    for var in ([1.0, 2.0], np.ones((3, 8, 9))):
        with pytest.raises(UsageError, match=rf"var_ptr has {np.size(var)} numbers, expected one per channel: 3"):
            normalise(path, path, var=var)
    for wrong in (None, io_layer_info):
        with pytest.raises(
            UsageError, match=f"expected an io_layer_info, found {type(wrong).__name__}.*which xiInit fills"
        ):
            normalise(path, path, info=wrong)
        with pytest.raises(UsageError, match="expected an io_layer_info"):
            xiInit(DIGITS, "digits.prototxt", "digits.caffemodel", wrong, 2, True, device="float")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="expected an io_layer_info"):
            outputWrite(tmp_path, path, buffers, 2, wrong)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        normalise(tmp_path / "none.png", path)
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ParseError, match=r"text\.png: this is no readable image"):
        normalise(path, tmp_path / "text.png")
    with pytest.raises(UsageError, match="3 images for a network that xiInit made for 2"):
        xiInputRead(buffers, [bytearray(2 * 216 * 4)], 3, info)
    with pytest.raises(UsageError, match="normalizeinput: 1 buffers, expected one for each image"):
        xiInputRead(buffers[:1], [bytearray(2 * 216 * 4)], 2, info)


@pytest.mark.parametrize("count", [3, -1, np.nan, np.inf])
def test_detections_that_nobody_has_made(count: float) -> None:
    with pytest.raises(UsageError, match=r"detections where there can be 2"):
        xiUnpackOutput([np.full(30, count, np.float32)], [bytearray(60)] * 2, kernel_type_e.NMS, 15, 2)


def test_outputs_that_are_too_short() -> None:
    with pytest.raises(UsageError, match="2 numbers left in the buffer for an image of 4"):
        xiUnpackOutput([np.zeros(6, np.float32)], [bytearray(16)] * 2, kernel_type_e.SOFTMAX, 4, 2)
    with pytest.raises(UsageError, match="unpack_output: 1 buffers, expected one for each image"):
        xiUnpackOutput([np.zeros(8, np.float32)], [bytearray(16)], kernel_type_e.SOFTMAX, 4, 2)


INPUTS = 'input: "{0}" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 5 '
TWO_OUTPUTS = INPUTS.format("d") + "".join(
    f'layer {{ name: "{n}" type: "Power" bottom: "d" top: "{n}" power_param {{ scale: 2 }} }}' for n in "xy"
)
TWO_INPUTS = "".join(
    f'layer {{ name: "{n}" type: "Input" top: "{n}" input_param {{ shape {{ dim: 1 dim: 2 dim: 3 dim: 5 }} }} }}' for n in "de"
) + 'layer { name: "s" type: "Eltwise" bottom: "d" bottom: "e" top: "s" }'  # fmt: skip
FLAT = 'input: "d" input_shape { dim: 1 dim: 6 } layer { name: "x" type: "ReLU" bottom: "d" top: "x" }'
NO_SIZE = 'layer { name: "d" type: "Input" top: "d" } layer { name: "x" type: "ReLU" bottom: "d" top: "x" }'
MERGED = INPUTS.format("d") + (
    'layer { name: "x" type: "Reshape" bottom: "d" top: "x" reshape_param { shape { dim: 1 dim: -1 } } }'
)
UNKNOWN = INPUTS.format("d") + (
    'layer { name: "x" type: "gem" bottom: "d" top: "x" user_defined_layer: true xcustom_param { top_dim: 1 top_dim: 2 } }'
)


@pytest.mark.parametrize(
    ("text", "args", "error", "words"),
    [
        (TWO_OUTPUTS, (2, False), UsageError, r"has 2 outputs \(x, y\); this interface has buffers for one"),
        (TWO_INPUTS, (2, False), UsageError, r"has 2 inputs \(d, e\)"),
        (FLAT, (2, True), UsageError, r"input 'd' is 2x6, no images .*is_first_layer=False"),
        (NO_SIZE, (2, False), UsageError, r"does not say the size of input 'd' .*shapes="),
        (MERGED, (2, False), UsageError, r"output 'x' is 1x60: not a part for each of 2 images"),
        (UNKNOWN, (2, False), PluginError, r"gem"),
        (FLAT, (0, False), UsageError, r"batch 0"),
        (FLAT, (1, False, "z"), UsageError, r"there is no layer 'z'"),
    ],
)
def test_networks_that_this_interface_cannot_take(
    tmp_path: Path, text: str, args: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        xiInit(write(tmp_path, text), "deploy.prototxt", None, io_layer_info(), *args)


def test_files_and_devices_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*none\.prototxt"):
        xiInit(tmp_path, "none.prototxt", None, io_layer_info(), 2, True)
    with pytest.raises(UsageError, match=r"there is no file .*none\.caffemodel"):
        xiInit(DIGITS, "digits.prototxt", "none.caffemodel", io_layer_info(), 2, True)
    with pytest.raises(DeviceError, match="there is no device 'sdsoc'"):
        xiInit(DIGITS, "digits.prototxt", "digits.caffemodel", io_layer_info(), 2, True, device="sdsoc")
