"""ROIPooling and PSROIPooling against R-CNN's loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from tests.reference import detection as ref

from .common import Run, build, close, numbers

REGIONS = np.array(
    [
        [0, 0, 0, 40, 30],
        [1, 3.5, 2.5, 17.4, 20.6],
        [1, -20, 5, 9, 300],  # over the edge
        [0, 50, 50, 10, 8],  # inside out
        [2, 200, 200, 260, 240],  # outside
        [2, 7, 7, 7, 7],
    ],
    np.float32,
)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (7, 9)])
@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0625])
def test_roi_pooling(run: Run, size: tuple[int, int], scale: float) -> None:
    x = numbers(3, 2, 9, 11, seed=1)
    text = f"roi_pooling_param {{ pooled_h: {size[0]} pooled_w: {size[1]} spatial_scale: {scale} }}"
    close(run("ROIPooling", text, x, REGIONS)[0], ref.roi_pooling(x, REGIONS, size, scale))


@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0625])
def test_psroi_pooling(run: Run, group: int, scale: float) -> None:
    x = numbers(3, 5 * group * group, 9, 11, seed=2)
    text = f"psroi_pooling_param {{ output_dim: 5 group_size: {group} spatial_scale: {scale} }}"
    close(run("PSROIPooling", text, x, REGIONS)[0], ref.psroi_pooling(x, REGIONS, 5, group, scale))


@pytest.mark.parametrize("image", [-1, 3, np.nan])
def test_a_region_of_no_image(tmp_path: Path, image: float) -> None:
    body = "roi_pooling_param { pooled_h: 2 pooled_w: 2 }"
    net = build(tmp_path, "ROIPooling", body, [(3, 1, 4, 4), (1, 5)])
    with pytest.raises(chai.ModelError, match=r"'probe' \(ROIPooling\).*outside 0 .. 2"):
        net.forward(np.ones((3, 1, 4, 4), np.float32), np.array([[image, 0, 0, 2, 2]], np.float32))
