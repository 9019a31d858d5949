"""Layers that repeat, pick or combine whole rows, and layers on a blob's axes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import chai
from tests.reference.arrangement import concat, with_shape
from tests.reference.elementwise import each
from tests.reference.window import pooling

from .common import Run, blob_shape, build, close, numbers
from .test_arrangement import same

X = numbers(2, 3, 5, 7, seed=1)


@pytest.mark.parametrize(("text", "axis"), [("", 1), ("axis: 0", 0), ("axis: 3", 3), ("axis: -2", 2)])
@pytest.mark.parametrize("tiles", [1, 4])
def test_tile(run: Run, text: str, axis: int, tiles: int) -> None:
    same(run("Tile", f"tile_param {{ {text} tiles: {tiles} }}", X)[0], concat([X] * tiles, axis))


@pytest.mark.parametrize(("text", "axis"), [("", 0), ("axis: 1", 1), ("axis: -1", 3), ("axis: 2", 2)])
@pytest.mark.parametrize("operation", ["SUM", "ASUM", "SUMSQ", "MEAN"])
@pytest.mark.parametrize("coeff", [1.0, -2.5])
def test_reduction(run: Run, text: str, axis: int, operation: str, coeff: float) -> None:
    (y,) = run("Reduction", f"reduction_param {{ {text} operation: {operation} coeff: {coeff} }}", X)
    wanted = np.zeros(X.shape[:axis])
    for at in np.ndindex(wanted.shape):
        values = [float(v) for v in X[at].ravel()]
        total = {
            "SUM": sum(values),
            "ASUM": sum(map(abs, values)),
            "SUMSQ": sum(v * v for v in values),
            "MEAN": sum(values) / len(values),
        }[operation]
        wanted[at] = coeff * total
    close(y, wanted, 1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 1, 3)])
def test_embed(run: Run, bias: bool, shape: tuple[int, ...]) -> None:
    table, added = numbers(7, 4, seed=2), numbers(4, seed=3)
    index = np.random.default_rng(0).integers(0, 7, shape).astype(np.float32)
    text = f"embed_param {{ num_output: 4 input_dim: 7 bias_term: {str(bias).lower()} }}"
    (y,) = run("Embed", text, index, weights=(table, added) if bias else (table,))
    for at in np.ndindex(shape):
        row = table[int(index[at])]
        close(y[at], row + added if bias else row)


@pytest.mark.parametrize("wrong", [7, -1, np.nan, np.inf, 1e20])
def test_an_index_that_is_none(tmp_path: Path, wrong: float) -> None:
    net = build(tmp_path, "Embed", "embed_param { num_output: 4 input_dim: 7 }", [(3,)])
    with pytest.raises(chai.ModelError, match=r"'probe' \(Embed\).*outside 0 .. 6"):
        net.forward(np.array([0, wrong, 6], np.float32))


def test_batch_reindex(run: Run) -> None:
    x = numbers(4, 3, 5, seed=4)
    for index in ([3, 0, 0, 2, 1, 3], [2]):
        (y,) = run("BatchReindex", "", x, np.array(index, np.float32))
        same(y, np.stack([x[i] for i in index]))


def test_filter(run: Run) -> None:
    a, b = numbers(4, 3, 5, seed=5), numbers(4, 7, seed=6)
    for marks in ([1, 0, -2, 0], [0, 0, 0, 0], [1, 1, 1, 1]):
        selector = np.array(marks, np.float32).reshape(4, 1, 1, 1)
        tops = run("Filter", "", a, b, selector, tops=2)
        for top, bottom in zip(tops, (a, b)):
            picked = [bottom[i] for i in range(4) if marks[i]]
            same(top, np.array(picked, np.float32).reshape(-1, *bottom.shape[1:]))


def test_layers_behind_a_filter_have_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
        layer { name: "s" type: "Input" top: "s" input_param { shape { dim: 4 } } }
        layer { name: "filter" type: "Filter" bottom: "x" bottom: "s" top: "f" }
        layer { name: "abs" type: "AbsVal" bottom: "f" top: "a" }
        layer { name: "tile" type: "Tile" bottom: "a" top: "y" tile_param { tiles: 2 } }
        """
    )
    x = numbers(4, 3, seed=20)
    y = chai.Net(path, device="float").forward(x=x, s=np.array([0, 1, 0, 1], np.float32))["y"]
    same(y, np.tile(np.abs(x[[1, 3]]), (1, 2)))


def behind_a_filter(folder: Path, type: str, fields: str, shape: tuple[int, ...]) -> chai.Net:
    """A filter of x by s, and a layer that reads what it picks; an Eltwise reads x, too."""
    (folder / "net.prototxt").write_text(
        f"""
        layer {{ name: "x" type: "Input" top: "x" input_param {{ {blob_shape(shape)} }} }}
        layer {{ name: "s" type: "Input" top: "s" input_param {{ {blob_shape(shape[:1])} }} }}
        layer {{ name: "filter" type: "Filter" bottom: "x" bottom: "s" top: "f" }}
        layer {{ name: "probe" type: "{type}" bottom: "f" {'bottom: "x"' * (type == "Eltwise")} top: "y" {fields} }}
        """
    )
    return chai.Net(folder / "net.prototxt", device="float")


@pytest.mark.parametrize(
    ("type", "fields", "top"),
    [
        ("ArgMax", "", (1, 1, 1)),
        ("Convolution", "convolution_param { num_output: 3 kernel_size: 2 }", (3, 1, 3)),
        ("DepthToSpace", "depth_to_space_param { block_size: 2 }", (16, 4, 1)),
        ("DepthToSpace", 'depth_to_space_param { block_size: 2 data_format: "CRD" }', (2, 4, 8)),
        ("DepthToSpace", 'depth_to_space_param { block_size: 2 data_format: "DCR" }', (2, 4, 8)),
        ("InnerProduct", "inner_product_param { num_output: 3 }", (3,)),
        ("InnerProduct", "inner_product_param { num_output: 3 transpose: true }", (3,)),
        ("Reduction", "reduction_param { operation: MAX axis: 1 }", ()),
        ("Softmax", "softmax_param { axis: 0 }", (8, 2, 4)),
        ("SPP", "spp_param { pyramid_height: 2 }", (40,)),
    ],
)
def test_layers_behind_a_filter_that_picks_nothing(
    tmp_path: Path, type: str, fields: str, top: tuple[int, ...]
) -> None:
    net = behind_a_filter(tmp_path, type, fields, (5, 8, 2, 4))
    assert net.forward(x=numbers(5, 8, 2, 4), s=np.zeros(5))["y"].shape == (0, *top)


@pytest.mark.parametrize(("operation", "value"), [("MAX", -np.inf), ("MIN", np.inf), ("SUM", 0), ("PROD", 1)])
def test_a_reduction_of_nothing(tmp_path: Path, operation: str, value: float) -> None:
    """Of extremes as ONNX says, of the others the number that changes no result."""
    net = behind_a_filter(tmp_path, "Reduction", f"reduction_param {{ operation: {operation} }}", (5, 3))
    assert net.forward(x=numbers(5, 3), s=np.zeros(5))["y"] == value


def test_nothing_is_resized_to_something(tmp_path: Path) -> None:
    net = behind_a_filter(tmp_path, "Resize", "resize_param { size: 4 size: 0 mode: LINEAR }", (5, 3))
    with pytest.raises(chai.ModelError, match=r"layer 'probe' \(Resize\): 0x3 has nothing that 4 along axis 0"):
        net.forward(x=numbers(5, 3), s=np.zeros(5))
    assert net.forward(x=numbers(5, 3), s=np.ones(5))["y"].shape == (4, 3)


@pytest.mark.parametrize("marks", [[0, 1, 0], [1, 0, 1]])
@pytest.mark.parametrize(
    ("type", "fields", "words"),
    [
        ("Eltwise", "", "bottom 1 is 3x2, bottom 0 is {}x2"),
        ("Scale", "scale_param { axis: 0 }", "its weights .* would be {}, they are 3"),
        (
            "InnerProduct",
            "inner_product_param { num_output: 4 axis: 0 }",
            "its weights .* would be 4x{0}, they are 4x6",
        ),
    ],
)
def test_layers_behind_a_filter_may_need_all_rows(
    tmp_path: Path, type: str, fields: str, words: str, marks: list[int]
) -> None:
    net = behind_a_filter(tmp_path, type, fields, (3, 2))
    rows = sum(marks) * (2 if type == "InnerProduct" else 1)
    with pytest.raises(chai.ShapeError, match=rf"layer 'probe' \({type}\): .*{words.format(rows)}"):
        net.forward(x=numbers(3, 2), s=np.array(marks))
    assert len(net.forward(x=numbers(3, 2), s=np.ones(3))["y"])


def test_parameter(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "own" type: "Parameter" top: "own" parameter_param { shape { dim: 2 dim: 3 } } }
        layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "own" top: "y" }
        """
    )
    net = chai.Net(path, device="float")
    (blob,) = net.params["own"]
    blob[...] = own = numbers(2, 3, seed=7)
    x = numbers(2, 3, seed=8)
    same(net.forward(x)["y"], x + own)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_what_a_caller_writes_into_an_output_is_not_trained(tmp_path: Path, device: str) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "own" type: "Parameter" top: "own" parameter_param { shape { dim: 2 dim: 3 } } }
        layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "own" top: "y" }
        layer { name: "flat" type: "Flatten" bottom: "own" top: "flat" flatten_param { axis: 0 } }
        """
    )
    net = chai.Net(path, device=device, keep="all", calibrate=numbers(2, 3, seed=8))
    net.params["own"][0][...] = own = numbers(2, 3, seed=7)
    x = numbers(2, 3, seed=8)
    first = net.forward(x)
    before = {name: value.copy() for name, value in first.items()}
    for written in (first["flat"], net.blobs["own"]):
        written *= 2
        same(net.params["own"][0], own)
        again = net.forward(x)
        assert all(np.array_equal(again[name], value) for name, value in before.items())
    net.params["own"][0][...] = 0
    same(again["flat"], own.reshape(-1))  # of the pass before


PYRAMIDS = {  # height: kernel, padding per level for a map of 5 x 8
    1: [((5, 8), (0, 0))],
    2: [((5, 8), (0, 0)), ((3, 4), (1, 0))],
}


@pytest.mark.parametrize("kind", ["MAX", "AVE"])
@pytest.mark.parametrize("height", PYRAMIDS)
def test_spp(run: Run, kind: str, height: int) -> None:
    x = numbers(2, 3, 5, 8, seed=9)
    parts = [pooling(x, kind, kernel, kernel, pad) for kernel, pad in PYRAMIDS[height]]
    (y,) = run("SPP", f"spp_param {{ pool: {kind} pyramid_height: {height} }}", x)
    if height == 1:
        close(y, parts[0])
    else:
        close(y, concat([with_shape(p, (2, p[0].size)) for p in parts], 1))


def test_spp_of_three_levels(run: Run) -> None:
    x = numbers(2, 3, 7, 6, seed=10)  # level 2: kernels 2 x 2, 1 row and 2 columns too many
    levels = [((7, 6), (0, 0)), ((4, 3), (1, 0)), ((2, 2), (1, 1))]
    parts = [pooling(x, "MAX", kernel, kernel, pad) for kernel, pad in levels]
    (y,) = run("SPP", "spp_param { pyramid_height: 3 }", x)
    close(y, concat([with_shape(p, (2, p[0].size)) for p in parts], 1))


@pytest.mark.parametrize(
    ("text", "top"),
    [("", (2, 3)), ("axis: 1", (2, 3, 1, 1)), ("axis: -1 axis: 3", (2, 1, 3)), ("axis: 4 axis: 1", (2, 3, 1))],
)
def test_squeeze(run: Run, text: str, top: tuple[int, ...]) -> None:
    x = numbers(2, 1, 3, 1, 1, seed=11)
    same(run("Squeeze", f"squeeze_param {{ {text} }}", x)[0], with_shape(x, top))


def test_pad(run: Run) -> None:
    sides = [(0, 1), (2, 0), (0, 0), (3, 4)]
    text = " ".join(f"paddings: {p}" for p in itertools.chain(*sides))
    for constant in (0.0, -2.5):
        (y,) = run("Pad", f"pad_param {{ {text} constant_values: {constant} }}", X)
        wanted = np.full([d + a + b for d, (a, b) in zip(X.shape, sides)], constant)
        for at in np.ndindex(X.shape):
            wanted[tuple(i + a for i, (a, _) in zip(at, sides))] = X[at]
        same(y, wanted)


@pytest.mark.parametrize("mode", ["CONSTANT", "REFLECT", "EDGE", "WRAP"])
def test_pad_of_a_scalar(run: Run, mode: str) -> None:
    same(run("Pad", f"pad_param {{ chai_mode: {mode} }}", numbers())[0], numbers())


PAIRS = [
    ((2, 3, 5, 7), (2, 3, 5, 7)),
    ((2, 3, 5, 7), (2, 3, 1, 1)),
    ((2, 1, 5, 7), (2, 3, 1, 7)),
    ((2, 3, 5, 7), (7,)),
    ((5, 1), (2, 3, 5, 7)),
    ((3, 1, 1), (2, 1, 5, 7)),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("type", ["Add", "Mul"])
def test_add_and_mul(run: Run, type: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    a, b = numbers(*first, seed=12), numbers(*second, seed=13)
    (y,) = run(type, "", a, b)
    count = max(a.ndim, b.ndim)
    shape = [max(x, z) for x, z in zip((1,) * (count - a.ndim) + first, (1,) * (count - b.ndim) + second)]
    wanted = np.zeros(shape)
    for at in np.ndindex(*shape):
        p, q = (
            float(blob[tuple(0 if d == 1 else i for i, d in zip(at[count - blob.ndim :], blob.shape))])
            for blob in (a, b)
        )
        wanted[at] = p + q if type == "Add" else p * q
    close(y, wanted)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1, 1)])
@pytest.mark.parametrize("rest", [(), (5,), (5, 7)])
def test_axpy(run: Run, shape: tuple[int, ...], rest: tuple[int, ...]) -> None:
    a, x, y = numbers(*shape, seed=14), numbers(2, 3, *rest, seed=15), numbers(2, 3, *rest, seed=16)
    wanted = each(y, float)
    for at in np.ndindex(x.shape):
        wanted[at] += float(a.reshape(2, 3)[at[:2]]) * float(x[at])
    close(run("Axpy", "", a, x, y)[0], wanted)
