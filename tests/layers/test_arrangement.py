"""Layers that only move numbers: Concat, Slice, Split, Silence, Flatten, Reshape, Permute and Crop."""

from __future__ import annotations

import itertools
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.reference import arrangement as ref

from .common import GEOMETRY, Run, build, numbers

X = numbers(2, 3, 5, 7, seed=1)
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def same(values: np.ndarray, wanted: np.ndarray) -> None:
    """Numbers that were only moved are equal."""
    assert values.shape == wanted.shape
    assert np.array_equal(values, wanted)


# -- Concat and Slice


@pytest.mark.parametrize(
    ("text", "axis"),
    [("", 1), ("axis: 0", 0), ("axis: 3", 3), ("axis: -2", 2), ("concat_dim: 1", 1), ("concat_dim: 0", 0)],
)
def test_concat(run: Run, text: str, axis: int) -> None:
    sizes = (2, 4, 1)
    bottoms = [numbers(*X.shape[:axis], s, *X.shape[axis + 1 :], seed=s) for s in sizes]
    same(run("Concat", f"concat_param {{ {text} }}", *bottoms)[0], ref.concat(bottoms, axis))


def test_concat_of_one(run: Run) -> None:
    same(run("Concat", "", X)[0], X)


@pytest.mark.parametrize(
    ("text", "axis", "points"),
    [
        ("", 1, (1, 2)),
        ("axis: 2 slice_point: 1 slice_point: 3", 2, (1, 3)),
        ("axis: -1 slice_point: 2 slice_point: 6", 3, (2, 6)),
        ("slice_dim: 3 slice_point: 1 slice_point: 2", 3, (1, 2)),
        ("slice_dim: 1", 1, (1, 2)),
    ],
)
def test_slice(run: Run, text: str, axis: int, points: tuple[int, ...]) -> None:
    pieces = run("Slice", f"slice_param {{ {text} }}", X, tops=3)
    for piece, wanted in zip(pieces, ref.cut(X, axis, points), strict=True):
        same(piece, wanted)


def test_slice_in_equal_pieces(run: Run) -> None:
    x = numbers(6, 4, seed=2)
    for piece, wanted in zip(run("Slice", "slice_param { axis: 0 }", x, tops=3), ref.cut(x, 0, (2, 4)), strict=True):
        same(piece, wanted)


def test_slice_into_one(run: Run) -> None:
    same(run("Slice", "", X)[0], X)


@GEOMETRY
@given(shape=shapes, data=st.data())
def test_concat_undoes_slice(run: Run, shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    first = axis % len(shape)
    cuts = range(1, shape[first])
    points = sorted(data.draw(st.sets(st.sampled_from(cuts), max_size=3), "points")) if cuts else []
    x = numbers(*shape, seed=3)
    text = f"axis: {axis} " + " ".join(f"slice_point: {p}" for p in points)
    pieces = run("Slice", f"slice_param {{ {text} }}", x, tops=len(points) + 1)
    for piece, wanted in zip(pieces, ref.cut(x, first, points), strict=True):
        same(piece, wanted)
    same(run("Concat", f"concat_param {{ axis: {axis} }}", *pieces)[0], x)


# -- Split and Silence


@pytest.mark.parametrize("tops", [1, 3])
def test_split(run: Run, tops: int) -> None:
    for top in run("Split", "", X, tops=tops):
        same(top, X)


def test_silence_hides_blobs_from_the_outputs(run: Run, tmp_path: Path) -> None:
    assert run("Silence", "", X, X, tops=0) == ()
    net = build(tmp_path, "Silence", "", [X.shape, (4,)], tops=0)
    assert net.outputs == ["abs"]
    assert list(net.forward(X, numbers(4))) == ["abs"]


# -- Flatten, Reshape, Permute


@pytest.mark.parametrize(
    ("text", "axis", "end"),
    [
        ("", 1, -1),
        ("axis: 0", 0, -1),
        ("axis: 2", 2, -1),
        ("axis: 1 end_axis: 2", 1, 2),
        ("axis: -3 end_axis: -2", -3, -2),
        ("axis: 2 end_axis: 2", 2, 2),
    ],
)
def test_flatten(run: Run, text: str, axis: int, end: int) -> None:
    (y,) = run("Flatten", f"flatten_param {{ {text} }}", X)
    same(y, ref.with_shape(X, ref.flattened(X.shape, axis, end)))


@pytest.mark.parametrize(
    ("dims", "axis", "num_axes", "wanted"),
    [
        ((0, -1), 0, -1, (2, 105)),
        ((0, 0, 35), 0, -1, (2, 3, 35)),
        ((-1,), 0, -1, (210,)),
        ((7, 5, 3, 2), 0, -1, (7, 5, 3, 2)),
        ((5, 3), 1, 2, (2, 5, 3, 7)),
        ((-1,), 1, 2, (2, 15, 7)),
        ((0, -1, 5), 1, -1, (2, 3, 7, 5)),
        ((1, 1), -1, -1, (2, 3, 5, 7, 1, 1)),  # -1: behind the last axis
        ((7, 5), -3, -1, (2, 3, 7, 5)),
        ((1,), 0, 0, (1, 2, 3, 5, 7)),  # replaces no axis
        ((), 4, -1, (2, 3, 5, 7)),
        ((-1, 0, 0), 1, -1, (2, 3, 5, 7)),
    ],
)
def test_reshape(run: Run, dims: tuple[int, ...], axis: int, num_axes: int, wanted: tuple[int, ...]) -> None:
    text = f"shape {{ {' '.join(f'dim: {d}' for d in dims)} }} axis: {axis} num_axes: {num_axes}"
    assert ref.reshaped(X.shape, dims, axis, num_axes) == wanted
    (y,) = run("Reshape", f"reshape_param {{ {text} }}", X)
    same(y, ref.with_shape(X, wanted))


@GEOMETRY
@given(shape=shapes, data=st.data())
def test_any_reshape(run: Run, shape: tuple[int, ...], data: st.DataObject) -> None:
    """Some axes are replaced by others of the same product; then sizes become 0 or -1 where that says the same."""
    first = data.draw(st.integers(0, len(shape)), "first")
    last = data.draw(st.integers(first, len(shape)), "last")
    inside = data.draw(
        st.permutations([*shape[first:last], 1, 1][: last - first + data.draw(st.integers(0, 2))]), "dims"
    )
    dims = list(inside)
    for i in range(len(dims)):
        if first + i < len(shape) and dims[i] == shape[first + i] and data.draw(st.booleans()):
            dims[i] = 0
    if dims and data.draw(st.booleans()):
        dims[data.draw(st.integers(0, len(dims) - 1))] = -1
    axis = data.draw(st.sampled_from([first, first - len(shape) - 1]), "axis")
    num_axes = -1 if last == len(shape) else last - first
    x = numbers(*shape, seed=4)
    text = f"shape {{ {' '.join(f'dim: {d}' for d in dims)} }} axis: {axis} num_axes: {num_axes}"
    (y,) = run("Reshape", f"reshape_param {{ {text} }}", x)
    same(y, ref.with_shape(x, ref.reshaped(shape, dims, axis, num_axes)))
    assert prod(y.shape) == prod(shape)


@pytest.mark.parametrize("order", [*itertools.permutations(range(4)), (), (2,), (3, 1)])
def test_permute(run: Run, order: tuple[int, ...]) -> None:
    (y,) = run("Permute", f"permute_param {{ {' '.join(f'order: {a}' for a in order)} }}", X)
    same(y, ref.permute(X, order))
    assert y.flags.c_contiguous


def test_permute_of_a_scalar(run: Run) -> None:
    same(run("Permute", "", numbers())[0], numbers())


# -- Crop


@pytest.mark.parametrize(
    ("text", "axis", "offset"),
    [
        ("", 2, ()),
        ("offset: 1", 2, (1,)),
        ("offset: 1 offset: 4", 2, (1, 4)),
        ("axis: 1 offset: 1 offset: 0 offset: 3", 1, (1, 0, 3)),
        ("axis: 0", 0, ()),
        ("axis: 3 offset: 4", 3, (4,)),
        ("axis: -1 offset: 2", -1, (2,)),
    ],
)
def test_crop(run: Run, text: str, axis: int, offset: tuple[int, ...]) -> None:
    like = numbers(1, 2, 4, 3)
    same(run("Crop", f"crop_param {{ {text} }}", X, like)[0], ref.crop(X, like.shape, axis, offset))


@GEOMETRY
@given(shape=shapes, data=st.data())
def test_any_crop(run: Run, shape: tuple[int, ...], data: st.DataObject) -> None:
    like = tuple(data.draw(st.integers(1, s), "size") for s in shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    start = axis % len(shape)
    room = [s - d for s, d in zip(shape[start:], like[start:])]
    kind = data.draw(st.sampled_from(["none", "one", "each"]))
    offset: tuple[int, ...] = ()
    if kind == "one":
        offset = (data.draw(st.integers(0, min(room))),)
    elif kind == "each":
        offset = tuple(data.draw(st.integers(0, r)) for r in room)
    x = numbers(*shape, seed=5)
    text = f"axis: {axis} " + " ".join(f"offset: {o}" for o in offset)
    same(run("Crop", f"crop_param {{ {text} }}", x, numbers(*like))[0], ref.crop(x, like, axis, offset))
