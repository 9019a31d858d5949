"""Constants that are right for one batch alone: every other is an error that names the node, and never a wrong number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.errors import ChaiError, ShapeError, UsageError

from .common import model, node, numbers

COUNT = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "first"], ["count"], axis=0)]
NUMBER = [*COUNT, node("Cast", ["count"], ["number"], to=1)]
FOUR = numbers(4, 3, 5, 7)
TENSORS = {
    "first": np.array([0]), "map": np.array([3, 5, 7]), "row": np.array([105]), "one": np.array([1]), "four": FOUR,
    "token": numbers(1, 3, 5, 7, seed=1), "second": np.array([1]),
}  # fmt: skip

# last nodes, and the answer by numpy for x
COUNTED = {
    "mean": (
        [*NUMBER, node("ReduceSum", ["x", "first"], ["sum"]), node("Div", ["sum", "number"], ["y"], "last")],
        lambda x: x.mean(0, keepdims=True),
    ),
    "share": ([*NUMBER, node("Div", ["x", "number"], ["y"], "last")], lambda x: x / len(x)),
    "images as the second axis": (
        [
            node("Transpose", ["x"], ["turned"], perm=[1, 0, 2, 3]),
            node("Shape", ["turned"], ["shape"]),
            node("Gather", ["shape", "second"], ["count"], axis=0),
            node("Cast", ["count"], ["number"], to=1),
            node("Mul", ["x", "number"], ["y"], "last"),
        ],
        lambda x: x * len(x),
    ),
    "a token for each image, and how many there are": (
        [
            *NUMBER,
            node("Concat", ["count", "map"], ["target"], axis=0),
            node("Expand", ["token", "target"], ["tokens"]),
            node("Mul", ["tokens", "number"], ["counted"]),
            node("Concat", ["counted", "x"], ["y"], "last", axis=1),
        ],
        lambda x: np.concatenate([np.repeat(TENSORS["token"] * len(x), len(x), 0), x], 1),
    ),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", COUNTED)
def test_numbers_that_count_the_images_are_for_one_batch(case: str, batch: int) -> None:
    nodes, expected = COUNTED[case]
    file = model(nodes, {"x": ("batch", 3, 5, 7)}, ["y"], TENSORS)
    x = numbers(batch, 3, 5, 7, seed=2)
    with chai.Net(file, device="float", shapes={"x": x.shape}) as net:
        np.testing.assert_allclose(net.forward(x=x)["y"], expected(x), rtol=1e-6, atol=1e-6)
        with pytest.raises(ShapeError, match="node 'last' has numbers for that batch") as caught:
            net.forward(x=numbers(2, 3, 5, 7))
        assert "--shape x=" in str(caught.value.hint)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", COUNTED)
def test_a_compiled_network_counts_the_same_images(tmp_path: Path, case: str, batch: int) -> None:
    """It would cut or fill up another batch to passes of its own, whose numbers are those of its own."""
    nodes, expected = COUNTED[case]
    x = numbers(batch, 3, 5, 7, seed=2)
    with chai.Net(model(nodes, {"x": ("batch", 3, 5, 7)}, ["y"], TENSORS), shapes={"x": x.shape}) as net:
        net.calibrate(x=x)
        save(net, tmp_path / "net.chai")
    with chai.Net(tmp_path / "net.chai") as net:
        np.testing.assert_allclose(net.forward(x=x)["y"], expected(x), atol=0.05)
        for images in (2, 6):
            with pytest.raises(UsageError, match=f"{images} images for a network of {batch}; node 'last' has numbers"):
                net.forward(x=numbers(images, 3, 5, 7))


@pytest.mark.parametrize("operator", ["Add", "Mul", "Greater", "Where"])
def test_a_single_image_is_not_repeated_for_a_constant_of_a_batch(operator: str) -> None:
    inputs = ["truth", "x", "four"] if operator == "Where" else ["x", "four"]
    nodes = [node("Less", ["x", "x"], ["truth"], "first"), node(operator, inputs, ["y"], "last")]
    with chai.Net(model(nodes, {"x": FOUR.shape}, ["y"], {"four": FOUR}), device="float") as net:
        assert net.forward(x=FOUR)["y"].shape == FOUR.shape
        with pytest.raises(ShapeError, match="node 'last' has numbers for that batch"):
            net.forward(x=FOUR[:1])


# sizes of blobs that do not change with the batch, and the batch as the first size
FREE = {
    "rows": [
        *COUNT, node("Concat", ["count", "row"], ["target"], axis=0), node("Reshape", ["x", "target"], ["y"]),
    ],
    "all images in one row": [
        *COUNT, node("Mul", ["count", "row"], ["size"]), node("Concat", ["one", "size"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ],
    "height": [
        node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "second"], ["channels"], axis=0),
        node("Cast", ["channels"], ["number"], to=1), node("Div", ["x", "number"], ["y"]),
    ],
    "numbers of an image": [
        *COUNT, node("Size", ["x"], ["all"]), node("Div", ["all", "count"], ["each"]),
        node("Cast", ["each"], ["number"], to=1), node("Div", ["x", "number"], ["y"]),
    ],
    "channels first": [
        node("Transpose", ["x"], ["turned"], perm=[1, 0, 2, 3]), node("Shape", ["turned"], ["shape"]),
        node("Gather", ["shape", "first"], ["channels"], axis=0), node("Cast", ["channels"], ["number"], to=1),
        node("Div", ["x", "number"], ["y"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("shapes", [((5,), (5, 7)), ((3, 5), (5, 7)), ((3, 4, 5), (3, 5, 7)), ((3, 4, 5), (1, 5, 7))])
def test_a_constant_matrix_leaves_the_batch_free(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Its last two axes are no images, wherever those of the blob are."""
    x, matrix = numbers(2, *shapes[0]), numbers(*shapes[1])
    file = model([node("MatMul", ["x", "matrix"], ["y"])], {"x": ("batch", *shapes[0])}, ["y"], {"matrix": matrix})
    for read in (1, 4):
        with chai.Net(file, device="float", shapes={"x": (read, *shapes[0])}) as net:
            np.testing.assert_allclose(net.forward(x=x)["y"], x @ matrix, rtol=1e-5, atol=1e-5)


def test_a_matrix_for_each_image_is_for_one_batch() -> None:
    x, matrices = numbers(3, 4, 5), numbers(3, 5, 7)
    nodes = [node("MatMul", ["x", "matrices"], ["y"], "last")]
    with chai.Net(model(nodes, {"x": x.shape}, ["y"], {"matrices": matrices}), device="float") as net:
        np.testing.assert_allclose(net.forward(x=x)["y"], x @ matrices, rtol=1e-5, atol=1e-5)
        with pytest.raises(ShapeError, match="node 'last' has numbers for that batch"):
            net.forward(x=x[:1])


TOKENS = {
    "expanded": [
        *COUNT, node("Concat", ["count", "map"], ["target"], axis=0), node("Expand", ["token", "target"], ["tokens"]),
    ],
    "of the file's batch": [node("Identity", ["alike"], ["tokens"])],
}  # fmt: skip


@pytest.mark.parametrize("read", [1, 2, 4])
@pytest.mark.parametrize("case", TOKENS)
def test_a_token_stands_before_the_parts_of_each_image(case: str, read: int) -> None:
    """Whatever the images are: no number of theirs is computed with."""
    batch: int | str = "batch" if case == "expanded" else 2
    token = TENSORS["token"]
    nodes = [*TOKENS[case], node("Concat", ["x", "tokens", "x"], ["y"], axis=1)]
    tensors = {**TENSORS, "alike": np.repeat(token, 2, 0)}
    with chai.Net(
        model(nodes, {"x": (batch, 3, 5, 7)}, ["y"], tensors), device="float", shapes={"x": (read, 3, 5, 7)}
    ) as net:
        for images in (1, 2, 3):
            x = numbers(images, 3, 5, 7, seed=2)
            x[0, 0, 0] = np.nan, np.inf, -np.inf, -0.0, 1e30, 0, 1
            expected = np.concatenate([x, np.repeat(token, images, 0), x], 1)
            np.testing.assert_array_equal(net.forward(x=x)["y"], expected)


@pytest.mark.parametrize("shape", [(1, 3, 1, 7), (1, 3, 5, 1), (1, 3, 5), (1, 3, 5, 7, 1)])
def test_a_token_of_another_size_is_no_part_of_an_image(shape: tuple[int, ...]) -> None:
    """Though it could be repeated along these axes, too."""
    file = model(
        [node("Concat", ["x", "other"], ["y"], axis=1)], {"x": (1, 3, 5, 7)}, ["y"], {"other": numbers(*shape)}
    )
    with pytest.raises(ChaiError, match="Concat"):
        chai.Net(file, device="float")


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_that_differ_between_images_are_for_one_batch(axis: int) -> None:
    x, both = numbers(2, 3, 5, 7), numbers(2, 3, 5, 7, seed=1)
    nodes = [node("Concat", ["x", "both"], ["y"], "last", axis=axis)]
    with chai.Net(model(nodes, {"x": x.shape}, ["y"], {"both": both}), device="float") as net:
        np.testing.assert_array_equal(net.forward(x=x)["y"], np.concatenate([x, both], axis))
        if axis:
            with pytest.raises(ShapeError, match="last"):
                net.forward(x=x[:1])
        else:
            np.testing.assert_array_equal(net.forward(x=x[:1])["y"], np.concatenate([x[:1], both]))


@pytest.mark.parametrize("case", FREE)
def test_other_sizes_leave_the_batch_free(case: str) -> None:
    divisor = {"numbers of an image": 105, "rows": 1, "all images in one row": 1}.get(case, 3)
    x = numbers(4, 3, 5, 7)
    with chai.Net(model(FREE[case], {"x": ("batch", 3, 5, 7)}, ["y"], TENSORS), device="float") as net:
        y = net.forward(x=x)["y"]
    np.testing.assert_allclose(y, (x / divisor).reshape(y.shape), rtol=1e-6, atol=1e-7)
    assert len(y) == (1 if case == "all images in one row" else 4)
