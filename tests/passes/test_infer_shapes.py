"""Shapes of all blobs: what is said of those that do not fit."""

from __future__ import annotations

import pytest

from chai.errors import ShapeError
from chai.passes.infer_shapes import infer_shapes
from tests.parser.common import graph, layer

FRAMES = layer("data", "Input", "", "data", "input_param { shape { dim: 6 dim: 5 } }") + layer(
    "view", "Reshape", "data", "view", "reshape_param { shape { dim: 2 dim: 3 dim: 5 } }"
)


def test_a_batch_among_the_sizes_of_a_reshape() -> None:
    """As in networks for videos: their batch are the frames of a clip."""
    net = graph(FRAMES)
    assert infer_shapes(net)["view"] == (2, 3, 5)
    with pytest.raises(ShapeError, match="'view'") as caught:
        infer_shapes(net, {"data": (1, 5)})
    assert caught.value.hint == "the file's own batch is 6: --batch 6, or Net(..., batch=6)"


@pytest.mark.parametrize(("size", "rows"), [(6, 4), (4, 3)])
def test_a_batch_that_is_not_the_reason(size: int, rows: int) -> None:
    """With a Reshape that fits no batch of the file, or with another size of an image."""
    net = graph(FRAMES.replace("dim: 6", f"dim: {size}"))
    with pytest.raises(ShapeError, match="'view'") as caught:
        infer_shapes(net, {"data": (rows, 5 if size == 4 else 7)})
    assert caught.value.hint is None
