"""Bands: some rows of a Task in a descriptor of their own, so that the other engine may begin with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai import overlay as overlays
from chai.artifact.save import save
from chai.codegen.chain import Chain
from chai.codegen.dependencies import dependencies
from chai.codegen.encoding import encode
from chai.errors import ChaiError, DeviceError
from chai.fixed import Requantization
from chai.overlay.layout import Placed
from chai.overlay.records import unpack
from chai.tasks import Task
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy, Fold
from chai.tasks.depthwise import Depthwise
from chai.tasks.eltwise import Eltwise
from chai.tasks.fields import Operands
from chai.tasks.filter import FilterTask
from chai.tasks.pool import Pool
from chai.tasks.pooling import PooledCodes
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window
from tests.artifact.common import save_with_pieces
from tests.codegen.test_arrange import chain_of, step_of
from tests.conftest import examples
from tests.tasks.lrns import random_case

Z2 = overlays.load("pynq-z2")
OF_ARRAY = "wide", "pooling"  # what only a Conv has
TALL = """
name: "tall"
input: "data" input_shape { dim: 1 dim: 16 dim: 46 dim: 90 }
layer { name: "a" type: "Convolution" bottom: "data" top: "a"
  convolution_param { num_output: 24 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "n" type: "LRN" bottom: "a" top: "n" lrn_param { local_size: 5 alpha: 0.01 beta: 0.75 } }
layer { name: "p" type: "Pooling" bottom: "n" top: "p" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "b" type: "Convolution" bottom: "p" top: "b"
  convolution_param { num_output: 16 kernel_size: 1 weight_filler { type: "gaussian" std: 0.1 } } }
"""


def conv(weights: tuple[int, ...], window: Window, pooling: PooledCodes | None = None, group: int = 1) -> Conv:
    m = weights[0]
    r = Requantization(np.ones((m, 1, 1), np.int64), 6, -128, 127)
    numbers = np.random.default_rng(m).integers(-9, 10, weights).astype(np.int8)
    return Conv(("x",), "y", ("c",), numbers, np.arange(m), window, group, r, pooling=pooling)


def pair(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


def values_of(task: Task, shapes: dict[str, tuple[int, ...]], address: dict[str, int]) -> dict[str, int]:
    """The fields of its descriptor, for blobs at these addresses."""
    places = {blob: Placed(offset, 64) for blob, offset in address.items()}
    return unpack(Z2.descriptor, encode(task, Operands(Z2, places, shapes), 1 << 20)[0])


@settings(max_examples=examples(150))
@given(
    st.data(),
    pair(1, 5),
    pair(1, 3),
    pair(0, 4),
    st.integers(1, 2),
    st.sampled_from(["conv", "filters", "MAX", "pooled"]),
)
def test_the_rows_of_a_band_are_those_of_what_it_reads(
    data: st.DataObject, kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int], step: int, kind: str
) -> None:
    """By the fields alone: the definition of an image of the rows that a descriptor reads, between its padding and its end."""
    if kind == "filters":
        kernel, pad, step = (3, 3), (min(pad[0], 2), min(pad[1], 2)), 1
    pad = (pad[0], pad[1]) if kind == "conv" else (min(pad[0], kernel[0] - 1), min(pad[1], kernel[1] - 1))
    height, width = data.draw(pair(9, 24))
    window = Window(kernel, stride, pad, (step, 1) if kind != "MAX" else (1, 1))
    size = window.sizes((height, width))
    if min(size) < 4:
        return
    x = np.random.default_rng(height).integers(-128, 128, (2, 8, height, width)).astype(np.int8)
    if kind == "MAX":
        task: Task = Pool(("x",), "y", ("p",), window, size, None)
    elif kind == "conv":
        task = conv((8, 8, *kernel), window)
    elif kind == "filters":
        numbers = vars(conv((8, 1, *kernel), window, None, 8))
        task = Depthwise(**{name: value for name, value in numbers.items() if name not in OF_ARRAY})
    else:
        over = Window((3, 2), (2, 2), (data.draw(st.integers(0, 1)), 0))
        out = (size[0] + over.pad[0] - 3 + 1) // 2 + 1, (size[1] - 2 + 1) // 2 + 1
        task = conv((8, 8, *kernel), window, PooledCodes(over, out))
    y = task.define(x)
    shapes = {"x": x.shape, "y": y.shape}
    if task.excluded(Z2, shapes):
        return
    bands = task.bands(Z2, shapes, data.draw(st.integers(2, 6)))
    if bands == (None,):
        assert y.shape[2] < 4 or pad[0] >= window.extent(0)
    else:
        assert [row for some in bands if some for row in range(some[0], sum(some))] == [*range(y.shape[2])]
    for rows in filter(None, bands):
        fields = values_of(replace(task, rows=rows), shapes, {"x": 1 << 30, "y": 1 << 31})
        skip = max(1, fields["input_row"] // width)  # rows from one that is read to the next
        first = (fields["input"] - (1 << 30)) // (8 * width)
        read = x[:, :, first:][:, :, ::skip][:, :, : fields["input_height"]]
        assert read.shape[2] == fields["input_height"]
        # below what it reads there is nothing but padding, as much as its last window needs
        own = window._replace(pad=(0, pad[1]), stride=(fields["stride_h"], stride[1]))
        codes = fields["output_height"] if kind != "MAX" else rows[1]
        filler = 0 if kind != "MAX" else -128
        below = (codes - 1) * own.stride[0] + own.extent(0) - fields["pad_h"] - read.shape[2]
        assert below <= 0 or first + read.shape[2] == height
        padded = np.pad(read, [(0, 0), (0, 0), (fields["pad_h"], max(0, below)), (0, 0)], constant_values=filler)
        if isinstance(task, Pool):
            result = replace(task, window=own, out=(rows[1], size[1])).define(padded)
        else:
            assert isinstance(task, FilterTask)
            changes: dict[str, Any] = {"pooling": None} if isinstance(task, Conv) else {}
            result = replace(task, window=own, **changes).define(padded)[:, :, :codes]
            if isinstance(task, Conv) and task.pooling is not None:
                over = task.pooling.window._replace(pad=(fields["pool_pad_h"], 0))
                result = replace(task.pooling, window=over, out=(rows[1], y.shape[3])).define(result)
        assert np.array_equal(result, y[:, :, rows[0] : sum(rows)])
        assert (fields["output"] - (1 << 31)) == rows[0] * y.shape[3] * 8
        assert fields["output_pitch"] == y.shape[2] * y.shape[3] * 8 and fields["input_pitch"] == height * width * 8
        if kind == "MAX":
            assert fields["tile_rows"] == fields["input_height"] * width
            assert fields["tile_columns"] == rows[1] * y.shape[3]


def test_rows_cover_the_image() -> None:
    shapes = {"x": (1, 8, 23, 9), "y": (1, 8, 23, 9)}
    task = conv((8, 8, 3, 3), Window((3, 3), (1, 1), (1, 1)))
    assert task.bands(Z2, shapes, 1) == (None,)
    assert task.bands(Z2, shapes, 4) == [(0, 6), (6, 6), (12, 6), (18, 5)]
    assert task.bands(Z2, shapes, 100) == [*((row, 3) for row in range(0, 21, 3)), (21, 2)]
    assert task.bands(replace(Z2, window=Z2.window._replace(bands=False)), shapes, 4) == (None,)


def test_a_band_of_padding_alone_is_none() -> None:
    """The last rows of a window that is smaller than the padding would read what follows the image."""
    shapes = {"x": (1, 8, 9, 9), "y": (1, 8, 15, 9)}
    task = conv((8, 8, 1, 1), Window((1, 1), (1, 1), (3, 0)))
    assert task.bands(Z2, shapes, 6) == (None,)
    assert task.bands(Z2, shapes, 2) == [(0, 8), (8, 7)]  # which sees a row of the image
    with pytest.raises(DeviceError, match=r"its part of 1 x 9 from \(9, 0\) is outside of 9 x 9"):
        values_of(replace(task, rows=(12, 3)), shapes, {"x": 1 << 30, "y": 1 << 31})


def test_what_has_no_bands() -> None:
    """Averages, whose records are of all rows; a window that covers the image; what goes by rows of all planes; a fold."""
    shapes = {"x": (1, 16, 12, 12), "y": (1, 16, 12, 12)}
    window = Window((3, 3), (1, 1), (1, 1))
    average = Requantization(np.ones((12, 12), np.int64), 4, -128, 127)
    assert Pool(("x",), "y", (), window, (12, 12), average).bands(Z2, shapes, 3) == (None,)
    assert len(Pool(("x",), "y", (), window, (12, 12), None).bands(Z2, shapes, 3)) == 3
    assert UpsampleTask(("x",), "y", (), (2, 2), False, None, 0).bands(Z2, shapes, 3) == (None,)
    assert Copy(("x",), "y", (), 0, None, fold=Fold(8, (16, 12, 12))).bands(Z2, shapes, 3) == (None,)
    assert len(Copy(("x",), "y", (), 0, None).bands(Z2, shapes, 3)) == 3


def test_words_of_a_band_fit_their_fields() -> None:
    shapes = dict.fromkeys("xy", (1, 8, 1024, 256))
    task = Copy(("x",), "y", (), 0, None)
    assert task.bands(Z2, shapes, 4) == (None,)  # 65,536 words each
    assert len(task.bands(Z2, shapes, 5)) == 5


def test_a_vector_is_read_whole() -> None:
    one = Requantization(np.array(1), 4, -128, 127)
    task = Eltwise(("x", "z"), "y", (), (3, 4), None, one, (0, 0), operation="SUM", vector=True, rows=(4, 4))
    shapes = {"x": (1, 16, 12, 5), "z": (1, 16, 1, 1), "y": (1, 16, 12, 5)}
    fields = values_of(task, shapes, {"x": 1 << 30, "z": 1 << 25, "y": 1 << 31})
    assert (fields["input"], fields["second"], fields["output"]) == ((1 << 30) + 160, 1 << 25, (1 << 31) + 160)
    assert fields["tile_rows"] == fields["tile_columns"] == 20 and fields["input_pitch"] == 480


# -- a network


def tall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[chai.Net, Chain]:
    """A network whose Tasks are cut into bands, and its chain."""
    monkeypatch.setattr("chai.codegen.cut.BANDINGS", ((16, 300, 0.05),))
    (tmp_path / "tall.prototxt").write_text(TALL)
    net = chai.Net(tmp_path / "tall.prototxt", device="null", overlay="pynq-z2")
    net.calibrate(np.random.default_rng(0).random((1, 16, 46, 90)).astype("f"))
    return net, chain_of(net, step_of(net))


def test_an_engine_begins_with_the_rows_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, segment = tall(tmp_path, monkeypatch)
    for blob in ("a", "n", "p"):
        bands = [task.rows for task in segment.tasks if task.output == blob]
        assert len(bands) > 1 and all(bands)
    first = next(i for i, task in enumerate(segment.tasks) if task.kind == "lrn")
    convolved = [task for task in segment.tasks[first:] if task.output == "a"]
    assert convolved and segment.after[first].array < 1 + len(convolved)  # rows that it does not wait for
    monkeypatch.setattr("chai.codegen.cut.BANDINGS", ())
    monkeypatch.setattr("chai.codegen.cut.COUNTS", ())
    apart = chain_of(net, step_of(net))
    assert not any(task.rows for task in apart.tasks) and segment.cycles < 0.95 * apart.cycles
    assert [task.rows for task in segment.whole] == [None] * len(apart.tasks)


def test_a_row_is_written_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, segment = tall(tmp_path, monkeypatch)
    tasks, order = [*segment.tasks], [*range(len(segment.tasks))]

    def after(order: list[int]) -> list[Any]:
        return dependencies(segment.overlay, [tasks[i] for i in order], segment.shapes, segment.regions)

    assert after(order) == list(segment.after)
    last = max(i for i in order if tasks[i].output == "a")
    with pytest.raises(DeviceError, match="blob 'a' is read before anything has written it"):
        after([i for i in order if i != last])
    with pytest.raises(DeviceError, match="written twice"):
        after([*order[: last + 1], last])


def test_a_file_has_the_same_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, segment = tall(tmp_path, monkeypatch)
    save(net, tmp_path / "tall.chai")
    again = chai.Net(tmp_path / "tall.chai", device="emulator")
    step = step_of(again)
    assert step.chain is not None and step.chain.pieces == segment.pieces and step.chain.after == segment.after
    assert step.chain.descriptors == segment.descriptors and step.chain.cycles == segment.cycles


def band(change: Callable[[list[list[int]]], Any]) -> Callable[[list[list[int]]], Any]:
    """A change of the pieces in bands."""
    return lambda pieces: change([piece for piece in pieces if len(piece) == 7])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (band(lambda some: some[1].__setitem__(4, some[1][4] + 1)), "are missing, or twice there"),
        (band(lambda some: some[0].__setitem__(4, 99)), "found 99 from 0"),
        (band(lambda some: some[0].__setitem__(3, -1)), "from -1"),
        (lambda pieces: pieces.pop(), "are missing, or twice there"),
        (lambda pieces: pieces[0].pop(), "expected a Task, its first image"),
        (lambda pieces: pieces[0].clear(), "expected a Task, its first image"),
        (
            band(lambda some: some[0].__setitem__(slice(3, 5), [some[0][4], some[0][3] + 1])),
            "are missing, or twice there",
        ),
    ],
)
def test_a_file_with_other_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], words: str
) -> None:
    net, _ = tall(tmp_path, monkeypatch)
    save_with_pieces(net, tmp_path / "net.chai", change)
    with pytest.raises(ChaiError, match=re.escape(words)):
        chai.Net(tmp_path / "net.chai", device="emulator")


def test_the_rows_of_an_average_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would have the records of the first rows."""
    monkeypatch.setattr("chai.codegen.cut.BANDINGS", ((16, 300, 0.05),))
    (tmp_path / "net.prototxt").write_text(TALL.replace("stride: 2 }", "stride: 2 pool: AVE }"))
    net = chai.Net(tmp_path / "net.prototxt", device="null", overlay="pynq-z2")
    net.calibrate(np.random.default_rng(0).random((1, 16, 46, 90)).astype("f"))
    with monkeypatch.context() as patch:
        patch.setattr(Pool, "in_bands", lambda *_: True)
        assert [task.rows for task in chain_of(net, step_of(net)).tasks if task.output == "p"] != [None]
        save(net, tmp_path / "net.chai")
    with pytest.raises(ChaiError, match="it cannot have some rows"):
        chai.Net(tmp_path / "net.chai", device="emulator")


def test_a_later_band_of_an_lrn_waits_for_its_table() -> None:
    """Of 512 words: while the first one computes, its table is in use."""
    task, _, _ = random_case(np.random.default_rng(0), 5)
    shapes = dict.fromkeys("xy", (1, 16, 40, 9))
    first, last = (replace(task, rows=rows).working_cycles(Z2, shapes) for rows in ((0, 20), (20, 20)))
    assert last == first + 512 and replace(task, rows=None).working_cycles(Z2, shapes) < first + last


def test_a_band_that_looks_like_a_global_pooling_is_none() -> None:
    """Windows of 9 rows over the last 9, of which the second one ends below the image: the hardware would take one for all."""
    task = Pool(("x",), "y", ("p",), Window((9, 2), (6, 1), (8, 0)), (4, 1), None)
    shapes = {"x": (1, 8, 13, 2), "y": (1, 8, 4, 1)}
    assert task.excluded(Z2, shapes) is None
    assert replace(task, rows=(2, 2)).rows_read(shapes, "x") == (4, 9)
    assert task.bands(Z2, shapes, 2) == (None,)
    with pytest.raises(DeviceError, match="rows \\(2, 2\\): a window as large as what they read gives one row, not 2"):
        values_of(replace(task, rows=(2, 2)), shapes, {"x": 0, "y": 1 << 20})
    wider = {"x": (1, 8, 13, 3), "y": (1, 8, 4, 2)}
    assert replace(task, out=(4, 2)).bands(Z2, wider, 2) == [(0, 2), (2, 2)]
