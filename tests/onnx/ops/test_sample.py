"""GridSample and RoiAlign as the file says them; tests/layers/test_of_onnx.py compares what the layers compute with loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one

X = numbers(2, 3, 5, 7)


def layer(operator: str, constants: dict[str, Any], opset: int = 22, **attributes: Any) -> Any:
    """The layer of a node, by its parameters."""
    file = model([node(operator, ["x", *constants], ["y"], **attributes)], {"x": X.shape}, ["y"], constants, opset)
    with chai.Net(file, device="float") as net:
        return net.graph.layers[-1].params


def test_attributes_of_grid_sample() -> None:
    grid = {"grid": numbers(2, 4, 6, 2, seed=1)}
    params = layer("GridSample", grid)
    assert (params.mode, params.outside, params.align_corners) == ("LINEAR", "ZEROS", False)
    params = layer("GridSample", grid, 16, mode="bicubic", padding_mode="reflection", align_corners=1)
    assert (params.mode, params.outside, params.align_corners) == ("CUBIC", "REFLECTION", True)
    assert layer("GridSample", grid, mode="nearest", padding_mode="border").outside == "BORDER"


def test_the_same_places_are_the_same_map() -> None:
    """A grid of the centres of pixels."""
    rows, columns = ((2 * np.arange(size) + 1) / size - 1 for size in (5, 7))
    places = np.stack(np.meshgrid(columns, rows), -1)[None].repeat(2, 0).astype(np.float32)
    np.testing.assert_allclose(one("GridSample", X, places, opset=20)[0], X, rtol=1e-5, atol=1e-5)


def test_attributes_of_roi_align() -> None:
    constants = {"rois": np.array([[0, 0, 4, 4]], np.float32), "images": np.array([1])}
    assert not layer("RoiAlign", constants, 10).half_pixel
    assert layer("RoiAlign", constants).half_pixel
    params = layer(
        "RoiAlign", constants, output_height=2, output_width=3, spatial_scale=0.25, sampling_ratio=4,
        coordinate_transformation_mode="output_half_pixel",
    )  # fmt: skip
    values = params.pooled_h, params.pooled_w, params.spatial_scale, params.sampling_ratio, params.half_pixel
    assert values == (2, 3, 0.25, 4, False)


def test_a_region_of_the_whole_map_is_its_mean() -> None:
    (y,) = one("RoiAlign", X, np.array([[0, 0, 7, 5]], np.float32), np.array([1]), sampling_ratio=35)
    np.testing.assert_allclose(y[0, :, 0, 0], X[1].mean((1, 2)), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("operator", "attributes", "reason"),
    [
        ("GridSample", {"mode": "lanczos"}, "mode 'lanczos'"),
        ("GridSample", {"padding_mode": "wrap"}, "padding_mode 'wrap'"),
        ("RoiAlign", {"mode": "max"}, "mode max"),
        ("RoiAlign", {"coordinate_transformation_mode": "odd"}, "coordinate_transformation_mode 'odd'"),
    ],
)
def test_what_is_refused(operator: str, attributes: dict[str, Any], reason: str) -> None:
    constants = [numbers(2, 4, 6, 2)] if operator == "GridSample" else [np.zeros((1, 4), np.float32), np.array([0])]
    with pytest.raises(UnsupportedNodes, match=reason):
        one(operator, X, *constants, opset=22, **attributes)
