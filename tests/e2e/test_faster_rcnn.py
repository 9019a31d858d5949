"""A small Faster R-CNN head as its prototxts write it: whole, from the image to the class scores of regions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from tests.layers.common import Array, close, numbers
from tests.reference.detection import proposals, roi_pooling
from tests.reference.window import convolution, pooling

CHANNELS, ANCHORS, CLASSES = 6, 4, 3
RATIOS, SCALES = (0.5, 2.0), (1.0, 2.0)
MOST = 90
OPTIONS: Any = {"stride": 8, "smallest": 6, "after": MOST, "nms": 0.5}
IMAGE = np.array([[40, 56, 1.25]], np.float32)

NET = f"""
input: "data" input_shape {{ dim: [1, 3, 40, 56] }}
input: "im_info" input_shape {{ dim: [1, 3] }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {{ num_output: {CHANNELS} kernel_size: 3 pad: 1 stride: 4 }} }}
layer {{ name: "relu" type: "ReLU" bottom: "conv" top: "conv" }}
layer {{ name: "half" type: "Pooling" bottom: "conv" top: "half" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "score" type: "Convolution" bottom: "half" top: "score"
  convolution_param {{ num_output: {2 * ANCHORS} kernel_size: 1 }} }}
layer {{ name: "delta" type: "Convolution" bottom: "half" top: "delta"
  convolution_param {{ num_output: {4 * ANCHORS} kernel_size: 1 }} }}
layer {{ name: "pairs" type: "Reshape" bottom: "score" top: "pairs"
  reshape_param {{ shape {{ dim: [0, 2, -1, 0] }} }} }}
layer {{ name: "prob" type: "Softmax" bottom: "pairs" top: "prob" }}
layer {{ name: "marks" type: "Reshape" bottom: "prob" top: "marks"
  reshape_param {{ shape {{ dim: [0, {2 * ANCHORS}, -1, 0] }} }} }}
layer {{ name: "proposal" type: "Proposal" bottom: "marks" bottom: "delta" bottom: "im_info" top: "rois" top: "worth"
  proposal_param {{ feat_stride: 8 min_size: 6 ratio: {list(RATIOS)} scale: {list(SCALES)} post_nms_topn: {MOST}
    nms_thresh: 0.5 }} }}
layer {{ name: "pool" type: "ROIPooling" bottom: "half" bottom: "rois" top: "pool"
  roi_pooling_param {{ pooled_h: 2 pooled_w: 3 spatial_scale: 0.125 }} }}
layer {{ name: "mix" type: "Convolution" bottom: "pool" top: "mix"
  convolution_param {{ num_output: 5 kernel_size: 1 }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "mix" top: "fc" inner_product_param {{ num_output: {CLASSES} }} }}
"""


def weights(net: chai.Net) -> dict[str, list[Array]]:
    """Numbers in every trained blob of the net, the same for every net; deltas stay small."""
    for i, (name, blobs) in enumerate(net.params.items()):
        for blob in blobs:
            blob[...] = numbers(*blob.shape, seed=i) * np.float32(0.1 if name == "delta" else 0.5)
    return {name: [blob.copy() for blob in blobs] for name, blobs in net.params.items()}


def head(x: Array, params: dict[str, list[Array]]) -> tuple[Array, Array, Array]:
    """Regions, their scores and their classes, layer by layer from the loops."""
    wide = np.maximum(convolution(x, *params["conv"], (4, 4), (1, 1)), 0)
    features = pooling(wide, "MAX", (2, 2), (2, 2), (0, 0))
    score = convolution(features, *params["score"], (1, 1), (0, 0))
    delta = convolution(features, *params["delta"], (1, 1), (0, 0))
    background, objects = np.exp(score[:, :ANCHORS]), np.exp(score[:, ANCHORS:])
    marks = np.concatenate([background, objects], 1) / np.tile(background + objects, (1, 2, 1, 1))
    image = (*IMAGE[0], IMAGE[0, 2])
    rois, worth = proposals(marks, delta, image, RATIOS, SCALES, stride=8, smallest=6, after=90, nms=0.5)
    return rois, worth, classes(features, rois, params)


def classes(features: Array, rois: Array, params: dict[str, list[Array]]) -> Array:
    """What the layers behind the regions say of them."""
    mixed = convolution(roi_pooling(features, rois, (2, 3), 0.125), *params["mix"], (1, 1), (0, 0))
    w, b = params["fc"]
    return mixed.reshape(len(rois), -1) @ w.T.astype(np.float64) + b


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "net.prototxt"
    file.write_text(NET)
    return file


@pytest.mark.parametrize("seed", range(3))
def test_float_is_the_loops(path: Path, seed: int) -> None:
    net = chai.Net(path, device="float", keep="all")
    params, x = weights(net), numbers(1, 3, 40, 56, seed=seed)
    rois, worth, scores = head(x, params)
    assert 5 < len(rois) < MOST
    close(net.forward(x, IMAGE)["fc"], scores, 1e-4)
    close(net.blobs["rois"], rois)
    close(net.blobs["worth"], worth)


def test_the_emulator_runs_what_has_a_known_size(path: Path) -> None:
    """Maps are in eight bits; regions and what follows are float, as many rows as there are regions."""
    net = chai.Net(path, device="emulator", keep="all")
    params = weights(net)
    net.calibrate(numbers(1, 3, 40, 56), IMAGE)
    engines = net.schedule.engines()
    assert {"fpga:Convolution", "fpga:Pooling", "host:Proposal", "host:ROIPooling"} <= set(engines)
    assert engines.count("host:Convolution") == 1
    assert "known only at run time" in net.offload.partition.reasons["mix"]
    sizes = set()
    for seed in range(3):
        x = numbers(1, 3, 40, 56, seed=seed)
        exact = head(x, params)[1]
        scores = net.forward(x, IMAGE)["fc"]
        rois, worth = net.blobs["rois"], net.blobs["worth"]
        sizes.add(len(rois))
        close(scores, classes(net.blobs["half"], rois, params), 1e-4)
        wanted = proposals(net.blobs["marks"], net.blobs["delta"], (*IMAGE[0], IMAGE[0, 2]), RATIOS, SCALES, **OPTIONS)
        close(rois, wanted[0])
        close(worth, wanted[1])
        assert abs(float(worth[0]) - exact[0]) < 0.05
    assert len(sizes) > 1  # else nothing is shown of rows


def test_a_layer_behind_regions_is_refused_the_device(path: Path) -> None:
    net = chai.Net(path, device="emulator", engine={"mix": "fpga"})
    with pytest.raises(chai.UsageError, match=r"'mix' cannot run on the overlay: how many rows"):
        net.calibrate(numbers(1, 3, 40, 56), IMAGE)
