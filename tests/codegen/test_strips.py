"""Convolutions whose rows do not fit the input buffer, strip by strip: the codes of the whole, in memory and in files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import chai
from chai import overlay as overlays
from chai.artifact.save import save
from chai.codegen.compile import chain
from chai.codegen.dependencies import NONE, dependencies
from chai.codegen.encoding import decode, encode
from chai.errors import ChaiError, DeviceError
from chai.fixed import Requantization
from chai.overlay.layout import Placed
from chai.overlay.records import unpack
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands, TaskConstants
from chai.tasks.tiling import beyond_ring, beyond_strips, row_words, strips
from chai.tasks.window import Window
from tests.artifact.common import save_with_pieces
from tests.codegen.equality import equal
from tests.passes.common import network
from tests.tasks.common import joined

Z2 = overlays.load("pynq-z2")
SHAPE = (2, 3, 5, 40)
DATA = np.random.default_rng(4).uniform(-1, 1, SHAPE).astype(np.float32)
LINES = """a Convolution data -> a : convolution_param { num_output: 20 kernel_size: 1 }
r ReLU a -> a
b Convolution a -> b : convolution_param { num_output: 24 kernel_size: 3 pad: 1 }
p Pooling b -> p : pooling_param { pool: MAX kernel_size: 2 stride: 2 }
c Convolution p -> c : convolution_param { num_output: 4 kernel_size: 1 }"""


def tight(folder: Path, words: int = 128, fields: bool = True) -> Path:
    """The default overlay with so many words of input; without the fields of strips too, if they are not wanted."""
    manifest = json.loads(Z2.path.read_text())
    manifest["buffers"]["input"]["depth"] = words
    if not fields:
        record = manifest["descriptor"]
        record["fields"] = [field for field in record["fields"] if not field["name"].endswith("_row")]
    path = folder / f"overlay{words}{fields}.json"
    path.write_text(json.dumps(manifest))
    return path


def planned(folder: Path, overlay: Path) -> chai.Net:
    net = network(folder, LINES, SHAPE, device="emulator", overlay=overlay)
    net.forward(DATA)
    return net


def compiled(net: chai.Net) -> Any:
    (step,) = net.schedule.segments
    return chain(step.work(net.overlay, net.offload.plan.device_shapes, net.schedule.views))


def test_a_network_is_cut_where_rows_do_not_fit(tmp_path: Path) -> None:
    """Of each image the same columns in order, then what reads them; with the codes of an overlay that holds the rows."""
    net, roomy = planned(tmp_path, tight(tmp_path)), planned(tmp_path, tight(tmp_path, 8192))
    segment = compiled(net)
    cut = [piece for piece in segment.pieces if piece.columns]
    assert {piece.task for piece in cut} == {1} and not any(piece.columns for piece in compiled(roomy).pieces)
    for image in range(2):
        assert [piece.columns for piece in cut if piece.images == (image, 1)] == [(0, 14), (14, 14), (28, 12)]
    assert [task.kind for task in segment.whole] == ["conv", "conv", "pool", "conv"]  # no pooling after columns
    (answer,), (wanted,) = (each.forward(DATA).values() for each in (net, roomy))
    assert answer.tobytes() == wanted.tobytes()
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator", overlay=tight(tmp_path))
    (step,) = again.schedule.segments
    assert step.chain.pieces == segment.pieces and step.chain.after == segment.after
    (answer,) = again.forward(DATA).values()
    assert answer.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("kernel", "columns"), [(1, [(0, 2), (2, 2)]), (9, [])])
def test_columns_that_a_stride_leaves_out_save_no_strip(
    tmp_path: Path, kernel: int, columns: list[tuple[int, int]]
) -> None:
    """Of 11 columns in 3 words each all but the last are read, and the input buffer has 32: a strip of all is no strip."""
    source = np.random.default_rng(4).uniform(-1, 1, (1, 40, 1, 11)).astype(np.float32)
    lines = f"c Convolution data -> c : convolution_param {{ num_output: 8 kernel_h: 1 kernel_w: {kernel} stride: 3 }}"
    net = network(tmp_path, lines, source.shape, device="emulator", overlay=tight(tmp_path, 32))
    wanted = net.forward(source)["c"]
    assert [piece.columns for step in net.schedule.segments for piece in compiled(net).pieces] == columns
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai", overlay=net.overlay.path).forward(source)["c"], wanted)


def test_an_overlay_without_their_fields_refuses_such_rows(tmp_path: Path) -> None:
    net = planned(tmp_path, tight(tmp_path, fields=False))
    assert net.offload.plan.partition.reasons["b"] == "3 input rows take 3,840 bytes, the overlay stages 2,048"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pieces: pieces.remove(next(p for p in pieces if p[5:] == [14, 14])), "columns of a task are missing"),
        (lambda pieces: pieces.pop([p[5:] for p in pieces].index([28, 12])), "columns of a task are missing"),
        (
            lambda pieces: next(p for p in pieces if p[5:] == [28, 12]).__setitem__(6, 13),
            "40 columns, found 13 from 28",
        ),
        (lambda pieces: next(p for p in pieces if p[0] == 0).extend([0, 5, 0, 20]), "columns of a task are missing"),
        (lambda pieces: next(p for p in pieces if p[0] == 1).append(3), "expected a Task, its first image"),
    ],
)
def test_a_file_without_some_columns_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    net = planned(tmp_path, tight(tmp_path))
    save_with_pieces(net, tmp_path / "net.chai", change)
    with pytest.raises(ChaiError, match=re.escape(words)):
        chai.Net(tmp_path / "net.chai", device="emulator", overlay=tight(tmp_path))


def test_a_blob_is_read_when_all_of_its_columns_are_written(tmp_path: Path) -> None:
    """Strips wait for nothing that the first did not; other orders are refused."""
    segment = compiled(planned(tmp_path, tight(tmp_path)))
    tasks, laid = [*segment.tasks], segment.regions

    def after(order: list[int]) -> list[Any]:
        return dependencies(segment.overlay, [tasks[i] for i in order], segment.shapes, laid)

    order = [*range(len(tasks))]
    assert after(order) == list(segment.after)
    first = next(i for i in order if tasks[i].columns)
    assert tasks[first].columns == (0, 14) and segment.after[first] != NONE
    strips = [i for i in order if tasks[i].columns and tasks[i].images == tasks[first].images]
    assert [segment.after[i] for i in strips] == [segment.after[first]] * 3
    reader = next(i for i in order if tasks[i].kind == "pool")
    missing = [i for i in order[:reader] if i != strips[-1]]
    with pytest.raises(DeviceError, match="read before anything has written it"):
        after([*missing, reader])
    with pytest.raises(DeviceError, match="not written strip by strip"):
        after([i for i in order[: strips[1] + 1] if i != first])
    with pytest.raises(DeviceError, match="written twice"):
        after([*order[: first + 1], first])


@given(
    st.tuples(st.integers(1, 300), st.integers(1, 30), st.integers(1, 4000)),
    st.tuples(st.integers(1, 11), st.integers(1, 11), st.integers(1, 4), st.integers(1, 8), st.integers(0, 10)),
)
def test_strips_cover_every_column_and_fit(source: tuple[int, ...], numbers: tuple[int, ...]) -> None:
    c, height, width = source
    kh, kw, stride, dilation, pad = numbers
    window = Window((kh, kw), (stride, stride), (min(pad, kh - 1), pad), (1, dilation))
    _, ow = window.sizes((height, width))
    geometry = (10, c, kh, kw), 1, (2, c, height, width)
    if min(window.sizes((height, width))) < 1:
        return
    columns = strips(Z2, window, *geometry)
    assert [n for first, count in columns for n in range(first, first + count)] == list(range(ow)) * bool(columns)
    assert (beyond_strips(Z2, window, *geometry) is None) == (
        beyond_ring(Z2, window, *geometry) is None or bool(columns)
    )
    for one in columns:
        strip = window.seen(1, one, width)
        left, right = one[0] * stride - pad, (sum(one) - 1) * stride - pad + (kw - 1) * dilation + 1
        assert (strip.first, strip.first + strip.size) == (max(0, left), max(min(width, right), max(0, left) + 1))
        assert strip.pad == max(0, -left) and 0 <= strip.first < width
        rows = min(height, stride + kh)
        assert rows * row_words(Z2, *geometry[:2], strip.size) <= Z2.buffers.input.depth


def test_a_descriptor_of_some_columns(tmp_path: Path) -> None:
    """By the words of hw_overlays/README.md: addresses of the first ones, their numbers, and the rows that they are in."""
    segment = compiled(planned(tmp_path, tight(tmp_path)))
    values = [unpack(segment.overlay.descriptor, each) for each in segment.descriptors]
    tasks = dict(zip((piece.columns for piece in segment.pieces), values))
    first, second, last = (tasks[columns] for columns in ((0, 14), (14, 14), (28, 12)))
    assert [each["input_width"] for each in (first, second, last)] == [15, 16, 13]
    assert [each["output_width"] for each in (first, second, last)] == [14, 14, 12]
    assert {each["pad_w"] for each in (second, last)} == {0} and first["pad_w"] == 1
    assert {(each["input_row"], each["output_row"]) for each in (first, second, last)} == {(40, 40)}
    assert [each["input"] - first["input"] for each in (second, last)] == [13 * 8, 27 * 8]
    assert [each["output"] - first["output"] for each in (second, last)] == [14 * 8, 28 * 8]
    assert all(each["tile_rows"] == 1 and each["tiles"] == 5 for each in (first, second, last))
    whole = next(task for task in segment.whole if isinstance(task, Conv) and len(task.bias) == 24)
    memory = Operands(segment.overlay, segment.regions.blobs, segment.shapes)
    with pytest.raises(DeviceError, match="3 input rows take 3,840 bytes"):
        encode(whole, memory, 64)
    encode(replace(whole, columns=(3, 2)), memory, 64)


@pytest.mark.parametrize(
    ("kernel", "pad", "skips"), [((1, 1), (0, 0), True), ((1, 3), (0, 1), True), ((3, 1), (1, 0), False)]
)
def test_rows_that_no_window_sees_are_not_fetched(kernel: tuple[int, int], pad: tuple[int, int], skips: bool) -> None:
    """The rows of a blob of 7 that windows of one row with a stride of 3 see are its first, fourth and seventh one."""
    random, window = np.random.default_rng(1), Window(kernel, (3, 2), pad)
    shapes = {"x": (2, 20, 7, 10), "y": (2, 12, *window.sizes((7, 10)))}
    weights, r = (
        random.integers(-9, 9, (12, 20, *kernel)).astype(np.int8),
        Requantization(np.full((12, 1, 1), 5), 8, -128, 127),
    )
    task = Conv(("x",), "y", ("one",), weights, np.zeros(12, np.int64), window, 1, r)
    memory = Operands(Z2, {"x": Placed(0, 8192), "y": Placed(8192, 8192)}, shapes)
    descriptor, pieces = encode(task, memory, 1 << 16)
    values = unpack(Z2.descriptor, descriptor)
    names = "input_height", "input_width", "stride_h", "stride_w", "input_row", "output_row", "output_height"
    rows = (3, 10, 1, 2, 30, shapes["y"][3], 3) if skips else (7, 10, 3, 2, 0, 0, 3)
    assert tuple(values[name] for name in names) == rows
    assert task.moved(Z2, shapes)[0] == 2 * 3 * 8 * 10 * rows[0]
    memory = Operands(Z2, memory.address, shapes, TaskConstants(joined(pieces), 1 << 16))
    common = {"inputs": ("x",), "output": "y", "origin": ("one",)}
    (again,) = decode([(values, common)], memory)
    assert equal(again, task)
    for name, value in (("stride_h", 3), ("input_row", 20), ("input_height", 7)) if skips else ():
        with pytest.raises(DeviceError, match=r"expected|does not"):
            decode([(values | {name: value}, common)], memory)
