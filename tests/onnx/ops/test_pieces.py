"""Blobs joined, cut, padded and repeated, by numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import ShapeError, UnsupportedNodes

from ..common import model, node, numbers, one, run, types

X = numbers(2, 6, 5, 7)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    z = numbers(2, 6, 5, 7, seed=1)
    file = model([node("Concat", ["x", "z", "x"], ["y"], axis=axis)], {"x": X.shape, "z": z.shape}, ["y"])
    np.testing.assert_array_equal(run(file, x=X, z=z)[0], np.concatenate([X, z, X], axis))
    np.testing.assert_array_equal(one("Concat", X, z, axis=axis)[0], np.concatenate([X, z], axis))


@pytest.mark.parametrize(
    ("sizes", "attributes", "opset"),
    [
        ([1, 2, 3], {"axis": 1}, 13),
        ([2, 2, 2], {"axis": 1}, 13),
        ([1, 2, 3], {"axis": 1, "split": [1, 2, 3]}, 11),
        ([3, 3, 1], {"axis": 3, "num_outputs": 3}, 18),
        ([6], {"axis": -3}, 13),
    ],
)
def test_split(sizes: list[int], attributes: dict[str, Any], opset: int) -> None:
    stated = len(set(sizes)) > 1 and opset == 13
    pieces = one("Split", X, *([np.array(sizes)] if stated else []), opset=opset, outputs=len(sizes), **attributes)
    for piece, expected in zip(pieces, np.split(X, np.cumsum(sizes)[:-1], attributes["axis"])):
        np.testing.assert_array_equal(piece, expected)


@pytest.mark.parametrize(
    ("index", "starts", "ends", "axes", "steps"),
    [
        (np.s_[:, 1:4], [1], [4], [1], None),
        (np.s_[:, :, 1:, :-2], [1, 0], [2**63 - 1, -2], [2, 3], None),
        (np.s_[0:1], [0], [1], [0], None),
        (np.s_[:, :, ::2, 1::2], [0, 1], [9, 9], [2, 3], [2, 2]),
        (np.s_[:, :, 1:5:3], [1], [5], [-2], [3]),
        (np.s_[:, -3:-1], [-3], [-1], [1], None),
        (np.s_[:, :, ::-1, 5:1:-2], [-1, 5], [-(2**62), 1], [2, 3], [-1, -2]),
        (np.s_[::-1, 1::3], [7, 1], [-9, 6], [0, 1], [-1, 3]),
        (np.s_[:, :1], [-9], [-8], [1], [-1]),  # both are before the axis: the start is its first place
    ],
)
def test_slice(index: Any, starts: list[int], ends: list[int], axes: list[int], steps: list[int] | None) -> None:
    constants = [np.array(c) for c in (starts, ends, axes, *([steps] if steps else []))]
    np.testing.assert_array_equal(one("Slice", X, *constants)[0], X[index])
    if steps is None:
        np.testing.assert_array_equal(one("Slice", X, opset=9, starts=starts, ends=ends, axes=axes)[0], X[index])


IMAGES = numbers(3, 2, 5)
REFUSAL = r"input 'x' is 3x2x5, but the network was read for 1x2x5; node 'probe' has numbers for that batch"


def of_images(operator: str, constants: list[Any], images: int) -> np.ndarray:
    """What a node computes of IMAGES in a file that was read for some images."""
    tensors = {f"c{i}": np.array(c) for i, c in enumerate(constants)}
    file = model([node(operator, ["x", *tensors], ["y"], "probe")], {"x": ("n", 2, 5)}, ["y"], tensors)
    with chai.Net(file, device="float", shapes={"x": (images, 2, 5)}) as net:
        return net.forward(x=IMAGES)["y"]


@pytest.mark.parametrize("images", [1, 2, 3])
@pytest.mark.parametrize(
    ("operator", "constants", "picks"),
    [
        ("Slice", [[0], [1], [0]], [0]),
        ("Slice", [[0], [2**31 - 1], [0]], [0, 1, 2]),
        ("Gather", [[0]], [0]),
        ("Gather", [[0, 0]], [0, 0]),
    ],
)
def test_images_by_their_numbers(operator: str, constants: list[Any], picks: list[int], images: int) -> None:
    np.testing.assert_array_equal(of_images(operator, constants, images), IMAGES[picks])


@pytest.mark.parametrize(
    ("operator", "constants", "picks"),
    [
        ("Slice", [[-1], [2**62], [0]], [2]),
        ("Slice", [[-2], [2**62], [0]], [1, 2]),
        ("Slice", [[0], [2], [0]], [0, 1]),
        ("Slice", [[-1], [-(2**62)], [0], [-1]], [2, 1, 0]),
        ("Gather", [[-1]], [2]),
    ],
)
def test_images_counted_from_the_end(operator: str, constants: list[Any], picks: list[int]) -> None:
    """Of the images that the file was read for; with others the node is named."""
    np.testing.assert_array_equal(of_images(operator, constants, 3), IMAGES[picks])
    with pytest.raises(ShapeError, match=REFUSAL):
        of_images(operator, constants, 1)


def test_pieces_and_copies_of_all_images() -> None:
    for operator, constant in (("Split", [1]), ("Expand", [3, 1, 1])):
        with pytest.raises(ShapeError, match=REFUSAL):
            of_images(operator, [constant], 1)
    file = model([node("Split", ["x"], ["a", "b", "y"], axis=0)], {"x": ("n", 2, 5)}, ["y"], opset=13)
    with chai.Net(file, device="float", shapes={"x": (6, 2, 5)}) as net:
        np.testing.assert_array_equal(net.forward(x=IMAGES)["y"], IMAGES[2:])


@pytest.mark.parametrize(
    ("axis", "indices"), [(1, 2), (1, [1, 2, 3]), (1, [4, 0, 0, -1]), (0, [1]), (-1, [[6, 0], [3, 3]])]
)
def test_gather(axis: int, indices: Any) -> None:
    np.testing.assert_array_equal(one("Gather", X, np.array(indices), axis=axis)[0], np.take(X, indices, axis))


@pytest.mark.parametrize(
    ("pads", "axes"),
    [([0, 0, 1, 2, 0, 0, 3, 0], None), ([0, 0, -1, 2, 0, 0, 3, -2], None), ([1, 2, 0, 1], [1, 3])],
)
def test_pad(pads: list[int], axes: list[int] | None) -> None:
    value = np.float32(1.5)
    pairs = np.zeros((4, 2), int)
    for i, axis in enumerate(axes or range(4)):
        pairs[axis] = pads[i], pads[i + len(pads) // 2]
    cropped = X[tuple(slice(max(-b, 0), size - max(-a, 0)) for (b, a), size in zip(pairs, X.shape))]
    expected = np.pad(cropped, np.maximum(pairs, 0), constant_values=value)
    more = [] if axes is None else [np.array(axes)]
    np.testing.assert_array_equal(one("Pad", X, np.array(pads), value, *more, opset=18)[0], expected)
    if axes is None:
        np.testing.assert_array_equal(one("Pad", X, opset=10, pads=pads, value=1.5)[0], expected)


def test_repeats() -> None:
    np.testing.assert_array_equal(one("Tile", X, np.array([1, 2, 1, 3]))[0], np.tile(X, (1, 2, 1, 3)))
    x = numbers(2, 1, 5, 1)
    np.testing.assert_array_equal(one("Expand", x, np.array([3, 1, 4]))[0], np.broadcast_to(x, (2, 3, 5, 4)))


def test_focus_is_cut_from_the_image() -> None:
    """The slices of YOLOv5's first layer: each quarter has every second pixel."""
    nodes, parts = [], []
    for i, (row, column) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        nodes.append(node("Slice", ["x", f"s{row}", "e", "h", "two"], [f"a{i}"]))
        nodes.append(node("Slice", [f"a{i}", f"s{column}", "e", "w", "two"], [f"b{i}"]))
        parts.append(f"b{i}")
    nodes.append(node("Concat", parts, ["y"], axis=1))
    constants = {"s0": [0], "s1": [1], "e": [2**62], "h": [2], "w": [3], "two": [2]}
    x = numbers(2, 3, 6, 8)
    file = model(nodes, {"x": x.shape}, ["y"], {name: np.array(c) for name, c in constants.items()})
    quarters = [x[..., r::2, c::2] for r, c in ((0, 0), (1, 0), (0, 1), (1, 1))]
    np.testing.assert_array_equal(run(file, x=x)[0], np.concatenate(quarters, 1))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_borders_of_the_image_itself(mode: str) -> None:
    """Every pixel of the top is one of the bottom: mirrored, the nearest, or from the other side."""
    x, (t, le, b, r) = numbers(2, 3, 5, 7), (2, 3, 4, 1)
    (y,) = one("Pad", x, np.array([0, 0, t, le, 0, 0, b, r]), mode=mode)

    def source(i: int, size: int) -> int:
        if mode == "edge":
            return min(max(i, 0), size - 1)
        return i % size if mode == "wrap" else size - 1 - abs(size - 1 - abs(i))

    rows, columns = ([source(i, size) for i in range(-a, size + z)] for a, z, size in ((t, b, 5), (le, r, 7)))
    np.testing.assert_array_equal(y, x[:, :, rows][..., columns])


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedNodes, match="without numbers"):
        one("Slice", X, np.array([0]), np.array([4]), np.array([1]), np.array([-1]))
    with pytest.raises(UnsupportedNodes, match="without numbers"):
        one("Slice", X, np.array([4]), np.array([4]), np.array([1]))
    with pytest.raises(UnsupportedNodes, match="an index outside"):
        one("Gather", X, np.array([6]), axis=1)
    with pytest.raises(UnsupportedNodes, match="mode 'mirror'"):
        one("Pad", X, np.array([0] * 8), mode="mirror")
    with pytest.raises(UnsupportedNodes, match="a padding of 9 of an axis of 5; REFLECT has 4 at most"):
        one("Pad", numbers(2, 3, 5, 7), np.array([0, 0, 9, 0, 0, 0, 0, 0]), mode="reflect")
    with pytest.raises(UnsupportedNodes, match="pieces of"):
        one("Split", X, np.array([1, 2]), outputs=2, axis=1)
    assert types(model([node("Concat", ["x"], ["a"], axis=1), node("Relu", ["a"], ["y"])], {"x": (2, 3)}, ["y"])) == [
        "ReLU"
    ]
