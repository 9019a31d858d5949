"""Every refusal of chai/layers, once: it names the file, the layer, its type and the numbers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import chai
from chai import layers

from .common import Shape, build

IMAGE = (2, 3, 5, 7)
LOSSES = {"losses.py"}  # test_losses.py


class Refused(NamedTuple):
    """A layer that cannot be, and words its message must have."""

    type: str
    body: str
    shapes: list[Shape]
    words: tuple[str, ...]
    tops: int = 1


def conv(text: str, *words: str, shapes: list[Shape] | None = None, tops: int = 1) -> Refused:
    return Refused("Convolution", f"convolution_param {{ {text} }}", shapes or [IMAGE], words, tops)


def of(type: str, message: str, text: str, shapes: list[Shape], *words: str, tops: int = 1) -> Refused:
    return Refused(type, f"{message} {{ {text} }}" if message else text, shapes, words, tops)


def pool(text: str, *words: str) -> Refused:
    return of("Pooling", "pooling_param", text, [IMAGE], *words)


def reshape(text: str, *words: str) -> Refused:
    return of("Reshape", "reshape_param", text, [IMAGE], *words)


def prior(text: str, *words: str, shapes: list[Shape] | None = None) -> Refused:
    return of("PriorBox", "prior_box_param", text, shapes or [IMAGE, (2, 4, 60, 98)], *words)


def detect(text: str, shapes: list[Shape], *words: str) -> Refused:
    return of("DetectionOutput", "detection_output_param", text, shapes, *words)


GRID = (2, 16, 4, 4)
TWO_MAPS = "anchor: 1 anchor: 2 anchor: 3 anchor: 4 stride: 8 stride: 16"


def free(text: str, shapes: list[Shape], *words: str) -> Refused:
    return of("AnchorFreeDetectionOutput", "anchor_free_detection_output_param", text, shapes, *words)


def anchored(text: str, shapes: list[Shape], *words: str) -> Refused:
    return of("AnchoredDetectionOutput", "anchored_detection_output_param", text, shapes, *words)


def decoded(text: str, shapes: list[Shape], *words: str) -> Refused:
    return of("DecodedDetectionOutput", "decoded_detection_output_param", text, shapes, *words)


def yolo3(text: str, shapes: list[Shape], *words: str) -> Refused:
    biases = "num_box: 2 num_classes: 3 biases: 1 biases: 2 biases: 3 biases: 4"
    return of("Yolov3DetectionOutput", "yolov3_detection_output_param", f"{biases} {text}", shapes, *words)


def yolo2(text: str, shapes: list[Shape], *words: str) -> Refused:
    body = text if "num_classes" in text else f"num_classes: 3 {text}"
    biases = "biases: 1 biases: 2 biases: 3 biases: 4"
    return of("YoloDetectionOutput", "yolo_detection_output_param", f"{biases} {body}", shapes, *words)


def rpn(
    text: str, *words: str, scores: Shape = (1, 2, 3, 5), deltas: Shape = (1, 4, 3, 5), image: Shape = (1, 3)
) -> Refused:
    return of("Proposal", "proposal_param", text, [scores, deltas, image], *words)


CASES = [
    # -- windows
    conv("num_output: 4 kernel_size: 3 kernel_h: 2", "kernel_size", "kernel_h"),
    conv("num_output: 4 kernel_size: 3 pad: 1 pad_w: 2", "pad", "pad_h"),
    conv("num_output: 4 kernel_size: 3 stride: 1 stride_h: 2", "stride", "stride_h"),
    conv("num_output: 4 kernel_h: 3", "kernel_h", "without kernel_w"),
    conv("num_output: 4 kernel_w: 3", "kernel_w", "without kernel_h"),
    conv("num_output: 4 kernel_size: 3 kernel_size: 2 kernel_size: 4", "kernel_size", "3 values"),
    conv("num_output: 4 kernel_size: 3 dilation: 3 dilation: 2 dilation: 4", "dilation", "3 values"),
    conv("num_output: 4", "kernel_size is missing"),
    conv("num_output: 4 kernel_size: 3", "2 bottoms", "1 top", shapes=[IMAGE, IMAGE]),
    conv("kernel_size: 3", "num_output is missing"),
    conv("num_output: 4 kernel_size: 3 axis: 2", "axis 2"),
    conv("num_output: 4 kernel_size: 3", "[3, 6]", shapes=[IMAGE, (2, 6, 5, 7)], tops=2),
    conv("num_output: 4 kernel_size: 3 group: 2", "channels 3", "2 groups"),
    conv("num_output: 4 kernel_size: 3 group: 3", "num_output 4", "3 groups"),
    conv("num_output: 4 kernel_size: 3", "4-axis", "2x3x5", shapes=[(2, 3, 5)]),
    conv("num_output: 4 kernel_h: 3 kernel_w: 4 dilation: 3", "3x4", "3x3", "5x7"),
    of("Deconvolution", "convolution_param", "num_output: 4 kernel_size: 2 pad: 3", [IMAGE], "3x3", "0x2"),
    of("DepthwiseConvolution", "convolution_param", "num_output: 3 group: 3", [IMAGE], "kernel_size is missing"),
    of("ConvolutionDepthwise", "convolution_param", "num_output: 6 kernel_size: 3", [(2, 12, 5, 7)], "num_output 6", "12 ch"),
    of("ConvolutionDepthwise", "convolution_param", "kernel_size: 3", [IMAGE], "num_output is missing"),
    # -- pooling
    pool("global_pooling: true kernel_size: 3", "global_pooling"),
    pool("global_pooling: true pad: 1", "pad 0 and stride 1"),
    pool("global_pooling: true stride_h: 2", "pad 0 and stride 1"),
    pool("kernel_size: 3 kernel_h: 2", "kernel_size", "kernel_h"),
    pool("pool: AVE", "kernel_size is missing"),
    pool("kernel_h: 2", "kernel_size is missing"),
    pool("kernel_h: 2 kernel_w: 3 pad: 2", "pad 2x2", "kernel 2x3"),
    pool("kernel_h: 6 kernel_w: 8", "6x8", "5x7"),
    of("Pooling", "pooling_param", "kernel_size: 2", [(2, 3, 5)], "4-axis", "2x3x5"),
    pool("kernel_size: 3 pad: 1 pad_l: 2", "pad", "pad_t"),
    pool("kernel_size: 3 pad_b: 3", "pad 3x0", "kernel 3x3"),
    pool("global_pooling: true pad_r: 1", "pad 0 and stride 1"),
    pool("pool: STOCHASTIC kernel_size: 3 pad_t: 1", "STOCHASTIC", "no padding"),
    of("Pooling", "pooling_param", "pool: AVE kernel_size: 3", [IMAGE], "only MAX", "AVE", tops=2),
    conv("num_output: 4 kernel_size: 3 pad: 1 pad_l: 2", "pad", "pad_t"),
    conv("num_output: 4 kernel_size: 3 dilation: 2 pad_t: 1 pad_b: 4", "paddings of 1 and 4", "dilation 2"),
    conv("num_output: 4 kernel_size: 3 dilation: 2 pad_l: 18", "paddings of 18 and 0", "16 at most"),
    of("Local", "local_param", "kernel_size: 3", [IMAGE], "num_output", "missing"),
    of("Local", "local_param", "num_output: 3", [IMAGE], "kernel_size", "missing"),
    of("Local", "local_param", "num_output: 3 kernel_size: 6 pad: 4", [IMAGE], "kernel 6", "5x7"),
    of("SPP", "", "", [IMAGE], "pyramid_height is missing"),
    of("SPP", "spp_param", "pyramid_height: 4", [IMAGE], "pad 2x1", "kernel 2x2"),
    # -- dense
    of("Embed", "embed_param", "num_output: 4", [(2,)], "input_dim is missing"),
    of("InnerProduct", "", "", [IMAGE], "num_output is missing"),
    of("InnerProduct", "inner_product_param", "num_output: 4 axis: 4", [IMAGE], "axis 4", "4 axes", "2x3x5x7"),
    of("LSTM", "", "", [(4, 2, 3), (4, 2)], "num_output is missing"),
    of("LSTM", "recurrent_param", "num_output: 5 expose_hidden: true", [(4, 2, 3), (4, 2)], "2 bottoms", "2 blobs", tops=3),
    of("RNN", "recurrent_param", "num_output: 5", [(4, 2, 3), (2, 4)], "4x2x3 and 2x4"),
    of("RNN", "recurrent_param", "num_output: 5", [(4, 2, 3), (4, 2), (3, 2)], "3x2", "2 sequences"),
    of(
        "RNN", "recurrent_param", "num_output: 5 expose_hidden: true", [(4, 2, 3), (4, 2), (1, 5, 2)],
        "1x5x2", "1x2x5", tops=2,
    ),
    # -- element by element
    of("PReLU", "", "", [(4,)], "no channel axis"),
    of("Bias", "", "", [IMAGE, (5,)], "second bottom 5", "2x3x5x7", "axis 1"),
    of("Bias", "bias_param", "axis: 2 num_axes: 3", [IMAGE], "num_axes 3", "axis 2", "2x3x5x7"),
    of("Scale", "", "", [IMAGE, (3, 5, 7, 2)], "second bottom 3x5x7x2", "2x3x5x7", "axis 1"),
    of("Scale", "scale_param", "axis: -1 num_axes: 2", [IMAGE], "num_axes 2", "axis 3", "2x3x5x7"),
    of("Scale", "scale_param", "axis: -5", [IMAGE], "axis -5", "4 axes"),
    of("Eltwise", "", "", [IMAGE, IMAGE, (2, 3, 7, 5)], "bottom 2 is 2x3x7x5", "bottom 0 is 2x3x5x7"),
    of("Eltwise", "eltwise_param", "coeff: 1 coeff: 2 coeff: 3", [IMAGE, IMAGE], "3 coeff", "2 bottoms"),
    of("Eltwise", "eltwise_param", "operation: PROD coeff: 1 coeff: 2", [IMAGE, IMAGE], "SUM", "PROD"),
    of("Clip", "clip_param", "max: 6", [IMAGE], "min or max is missing"),
    of("Exp", "exp_param", "base: 0", [IMAGE], "base 0"),
    of("Log", "log_param", "base: 1", [IMAGE], "base 1"),
    of("Log", "log_param", "base: -2", [IMAGE], "base -2"),
    of("Add", "", "", [IMAGE, (3, 1)], "2x3x5x7 and 3x1", "equal or 1"),
    of("Axpy", "", "", [(2, 3, 1), IMAGE, IMAGE], "2x3x1 * 2x3x5x7", "per image and channel"),
    of("Axpy", "", "", [(2, 3), IMAGE, (2, 3, 7, 5)], "2x3x5x7 + 2x3x7x5"),
    # -- normalization
    of("MVN", "", "", [(2, 3)], "4-axis", "2x3"),
    of("BN", "", "", [(3,)], "with channels", "found 3"),
    of("LRN", "lrn_param", "local_size: 4", [IMAGE], "local_size 4", "odd"),
    of("LRN", "", "", [(2, 3)], "4-axis", "2x3"),
    of("Softmax", "softmax_param", "axis: 2", [(2, 3)], "axis 2", "2 axes", "2x3"),
    # -- arrangement
    of("Concat", "", "", [IMAGE, (2, 4, 5, 7), (2, 3, 6, 7)], "bottom 2 is 2x3x6x7", "2x3x5x7", "axis 1"),
    of("Concat", "", "", [IMAGE, (2, 3, 5)], "bottom 1 is 2x3x5,", "axis 1"),
    of("Concat", "concat_param", "axis: 4", [IMAGE], "axis 4", "4 axes"),
    of("Slice", "slice_param", "slice_point: 1", [IMAGE], "3 tops", "2 slice_point", "found 1", tops=3),
    of("Slice", "", "", [IMAGE], "axis 1", "3 elements", "2 equal", tops=2),
    of("Slice", "slice_param", "slice_point: 2 slice_point: 1", [IMAGE], "0 and 3", "[2, 1]", tops=3),
    of("Slice", "slice_param", "slice_point: 3", [IMAGE], "0 and 3", "[3]", tops=2),
    of("Flatten", "flatten_param", "axis: 2 end_axis: 1", [IMAGE], "end_axis 1", "axis 2"),
    reshape("", "shape is missing"),
    reshape("shape { dim: 0 } axis: 3 num_axes: 2", "num_axes 2", "axis 3", "2x3x5x7"),
    reshape("shape { dim: 0 dim: 0 } axis: 3", "dim 1", "axis 4", "2x3x5x7"),
    reshape("shape { dim: -1 dim: -1 }", "more than one dim is -1"),
    reshape("shape { dim: 4 dim: -1 }", "210", "4"),
    reshape("shape { dim: 4 dim: 5 }", "210", "4x5", "20"),
    reshape("shape { dim: 4 } axis: 5", "axis 5", "4 axes"),
    of("Permute", "permute_param", "order: 0 order: 2 order: 0", [IMAGE], "[0, 2, 0]", "2x3x5x7"),
    of("Permute", "permute_param", "order: 4", [IMAGE], "[4]", "2x3x5x7"),
    of("Crop", "", "", [IMAGE, (2, 3)], "4 and 2 axes", "2x3x5x7", "2x3"),
    of("Crop", "crop_param", "offset: 1 offset: 1 offset: 1", [IMAGE, (1, 1, 2, 2)], "3 offsets", "2 cropped"),
    of("Crop", "crop_param", "offset: 0 offset: 4", [IMAGE, (1, 1, 2, 4)], "axis 3", "4 elements from 4", "has 7"),
    of("ArgMax", "argmax_param", "axis: 1 top_k: 4", [IMAGE], "top_k 4", "3 values"),
    of("ArgMax", "argmax_param", "top_k: 106", [IMAGE], "top_k 106", "105 values"),
    of("Tile", "", "", [IMAGE], "tiles is missing"),
    of("MatMul", "", "", [(2, 3), (4, 5)], "3 columns of 2x3", "4 rows of 4x5"),
    of("MatMul", "", "", [(2, 3, 5), (4, 5, 7)], "2x3x5 and 4x5x7", "equal or 1"),
    of("MatMul", "", "", [(), (4, 5)], "a scalar is no matrix"),
    of("Where", "", "", [(2, 3), (3,), (2,)], "2x3, 3, 2", "equal or 1"),
    of("GridSample", "", "", [IMAGE, (1, 5, 5, 3)], "1x5x5x3", "a number for each axis"),
    of("RoiAlign", "", "", [IMAGE, (3, 5), (3,)], "regions of 4 numbers", "3x5"),
    of("LayerNorm", "layer_norm_param", "axis: 4", [IMAGE], "axis 4", "4 axes"),
    of("Resize", "resize_param", "size: 3", [IMAGE], "1 size", "4 axes"),
    of("Resize", "resize_param", "size: 0 size: 1 size: 2 size: 3 scale: 2", [IMAGE], "1 scale", "4 axes"),
    of("Resize", "resize_param", "size: 1 size: 2 coordinates: TF_CROP_AND_RESIZE roi: 1", [(2, 3)], "1 number of roi"),
    of("Reduction", "reduction_param", "axis: 4", [IMAGE], "axis 4", "4 axes"),
    of("BatchReindex", "", "", [IMAGE, (2, 1)], "2x3x5x7 and 2x1", "one axis"),
    of("Filter", "", "", [IMAGE, (2,)], "1 bottom", "2 tops", tops=2),
    of("Filter", "", "", [IMAGE, (2, 3)], "one number per image", "2x3"),
    of("Filter", "", "", [IMAGE, (3,)], "bottom 0 is 2x3x5x7", "selector 3"),
    of("Squeeze", "squeeze_param", "axis: 1", [IMAGE], "axis 1", "3 long"),
    of("Pad", "pad_param", "paddings: 1 paddings: 1", [IMAGE], "2 paddings", "2x3x5x7"),
    of("Pad", "pad_param", "paddings: 0 paddings: 3 chai_mode: REFLECT", [(3,)], "a padding of 3", "an axis of 3", "2 at most"),
    of("ShapeOf", "", "", [()], "a scalar has no axes"),
    of("ShuffleChannel", "shuffle_channel_param", "group: 2", [IMAGE], "2x3x5x7", "2 groups"),
    of("DepthToSpace", "", "", [IMAGE], "block_size is missing"),
    of("DepthToSpace", "depth_to_space_param", 'block_size: 1 data_format: "CHW"', [IMAGE], "'CHW'", "NHWC"),
    of("DepthToSpace", "depth_to_space_param", 'block_size: 2 data_format: "NCHW"', [IMAGE], "3 channels", "2x2"),
    reshape("pixelshuffler: 2", "3 channels", "2x2"),
    of("Reorg", "", "", [IMAGE], "stride is missing"),
    of("Reorg", "reorg_param", "stride: 2", [(2, 4, 5, 6)], "2x4x5x6", "stride 2"),
    # -- sizes
    of("Upsample", "upsample_param", "upsample_h: 9 upsample_w: 9", [IMAGE], "one bottom", "scale"),
    of("Upsample", "", "", [IMAGE, (2, 3, 5, 6)], "2x3x5x6", "2x3x5x7"),
    of("Upsample", "upsample_param", "scale: 3 pad_out_h: true", [IMAGE, IMAGE], "scale 2", "found 3"),
    of(
        "ResizeNearestNeighbor", "resize_nearest_neighbor_param", "align_corners: true half_pixel_centers: true",
        [IMAGE], "align_corners", "half_pixel_centers",
    ),
    of("ResizeNearestNeighbor", "resize_nearest_neighbor_param", "scale_width: 0.1", [IMAGE], "nothing is left", "0.1"),
    of("Interp", "", "", [IMAGE], "size is missing"),
    of("Interp", "interp_param", "zoom_factor: 2 pad_beg: -5", [IMAGE], "pad_beg -5", "5x7"),
    of("ContinuationIndicator", "", "", [IMAGE], "time_step"),
    of("ICNetSubgraph", "", "", [(2, 3, 1, 1)], "17x33", "1x1"),
    of("Im2col", "convolution_param", "kernel_size: 3 axis: 2", [IMAGE], "axis 2"),
    of("Im2col", "convolution_param", "kernel_size: 3 dilation: 3", [IMAGE], "3x3", "dilation 3x3", "5x7"),
    # -- regions
    rpn("scale: 8", "ratio or scale is missing"),
    rpn("ratio: 1", "ratio or scale is missing"),
    rpn("ratio: [1, 2] scale: 8", "1x2x3x5", "1x4x3x5", "2 anchors", "1x8x3x5"),
    rpn("ratio: 1 scale: 8", "2x2x3x5", "one image", scores=(2, 2, 3, 5)),
    rpn("ratio: 1 scale: 8", "one or two scales", "1x2", image=(1, 2)),
    rpn("ratio: 1 scale: 8", "1,000,001", "boxes", scores=(1, 2, 1, 1_000_001), deltas=(1, 4, 1, 1_000_001)),
    of("ROIPooling", "", "", [IMAGE, (4, 5)], "pooled_h", "missing"),
    of("ROIPooling", "roi_pooling_param", "pooled_h: 2 pooled_w: 2", [IMAGE, (4, 6)], "5 numbers", "4x6"),
    of("PSROIPooling", "psroi_pooling_param", "output_dim: 3 group_size: 1", [IMAGE, (4, 5)], "spatial_scale", "missing"),
    of("PSROIPooling", "psroi_pooling_param", "output_dim: 3 group_size: 2 spatial_scale: 1", [IMAGE, (4, 5)], "12 channels"),
    # -- heads of detectors
    free("", [(1, 6, 5, 7), (1, 6, 5)], "maps or blobs of all maps", "1x6x5"),
    free("", [(1, 64, 9), (1, 3, 9), (1, 3, 9)], "distances and classes of all cells"),
    free("", [(1, 64, 5, 7), (1, 3, 5, 6)], "64 channels of distances beside"),
    free("", [(1, 66, 5, 7), (1, 67, 3, 4)], "64 channels of distances and some classes, alike in all"),
    free("stride: 8 height: 24 width: 16", [(1, 66, 7)], "7 cells; expected 6", "24x16"),
    anchored("", [(1, 16, 5, 7)], "0 numbers of anchors", "1 maps"),
    anchored("anchor: 1 anchor: 2 stride: 8 stride: 4", [(1, 8, 5, 7)], "2 numbers of stride", "1 maps"),
    anchored("anchor: 1 anchor: 2 stride: 8", [(1, 5, 5, 7)], "1x5x5x7", "no map of 1 anchors"),
    anchored(TWO_MAPS, [(1, 8, 5, 7), (1, 9, 3, 4)], "different classes or images", "1x9x3x4"),
    anchored("anchor: 1 anchor: 2 stride: 8", [(1, 8, 9_000, 9_000)], "too many boxes"),
    decoded("", [(1, 7, 9)], "height and width", "missing"),
    decoded("height: 32 width: 24", [(1, 4, 9)], "4 numbers of each box", "1x4x9"),
    # -- YOLO
    yolo3("mask_group_num: 2 anchors_scale: 8", [GRID], "1 bottom", "1 anchors_scale", "mask_group_num 2"),
    yolo3("mask_group_num: 1 anchors_scale: 8 mask: 0", [GRID], "[0]", "2 of 2 anchors", "1 grids"),
    yolo3("mask_group_num: 1 anchors_scale: 8 mask: 0 mask: 2", [GRID], "[0, 2]", "2 of 2 anchors"),
    yolo2("num_box: 3", [GRID], "4 biases", "3 boxes", "6"),
    yolo2("num_box: 2 num_classes: 2", [GRID], "16 channels", "2 classes", "14"),
    yolo2("num_box: 2", [GRID, (1, 16, 4, 4)], "grids of 2 and of 1 image", "1x16x4x4"),
    yolo2("num_box: 2", [(1, 16, 5000, 5000)], "150,000,000", "scores"),
    # -- SSD
    detect("num_classes: 3", [(2, 24), (2, 18), (1, 2, 24), (2, 1), (2, 1)], "5 bottoms", "no_permute"),
    detect("num_classes: 3 no_permute: true", [(2, 24), (2, 18), (1, 2, 24)], "3 bottoms", "6 feature maps", "13"),
    detect("num_classes: 3 no_permute: true nbottom: 1", [(2, 3, 1, 20), (2, 4, 3, 5), (1, 2, 60)], "2x3x1x20", "2x4x3x5"),
    prior("", "min_size is missing"),
    prior("min_size: 20 min_size: 30 max_size: 40", "1 max_size", "2 min_size"),
    prior("min_size: 20 max_size: 20", "max_size 20", "min_size 20"),
    prior("min_size: 20 variance: 0.1 variance: 0.2", "2 variance", "1 or 4"),
    prior("min_size: 20 img_h: 50", "img_size", "img_h", "img_w"),
    prior("min_size: 20 img_size: 50 img_h: 50 img_w: 50", "img_size", "img_h", "img_w"),
    prior("min_size: 20 step: 5 step_h: 5 step_w: 5", "step", "step_h", "step_w"),
    prior("min_size: 20", "1,002,001", "boxes=1,000,000", shapes=[(1, 1, 1001, 1001), IMAGE]),
    prior("min_size: 20", "4-axis", "2x3", shapes=[IMAGE, (2, 3)]),
    detect("", [(2, 24), (2, 18), (1, 2, 24)], "num_classes is missing"),
    detect("num_classes: 3", [(2, 24), (2, 18), (2, 24)], "priors", "2x24"),
    detect("num_classes: 3", [(2, 24), (1, 18), (1, 2, 24)], "2x24", "1x18", "same images"),
    of("ArgMax", "argmax_param", "", [()], "scalar"),
    of("BatchNorm", "", "", [()], "scalar"),
    of("Normalize", "", "", [(5,)], "channels", "5"),
    detect("num_classes: 3", [(2, 20), (2, 18), (1, 2, 24)], "20 locations", "6 priors", "3 classes", "24"),
    detect("num_classes: 3", [(2, 24), (2, 12), (1, 2, 24)], "12 scores", "6 priors", "3 classes", "18"),
    detect("num_classes: 3 share_location: false", [(2, 24), (2, 18), (1, 2, 24)], "24 locations", "expected 72"),
    detect("num_classes: 1", [(1, 400_000_004), (1, 100_000_001), (1, 2, 400_000_004)], "100,000,001"),
]  # fmt: skip


class Declared(NamedTuple):
    """A source that cannot be."""

    text: str
    words: tuple[str, ...]


TWO_OF_THREE = 'top: "x" top: "y" top: "z" %s { shape { dim: 2 } shape { dim: 3 } }'
SOURCES = [
    Declared('type: "Input" ' + TWO_OF_THREE % "input_param", ("3 tops", "2 shapes")),
    Declared('type: "Input" top: "x" input_param { shape { dim: 2 dim: 0 } }', ("at least 1",)),
    Declared('type: "DummyData" ' + TWO_OF_THREE % "dummy_data_param", ("3 tops", "2 shapes")),
    Declared('type: "DummyData" top: "x" dummy_data_param { shape { dim: -1 } }', ("at least 1",)),
    Declared(
        'type: "DummyData" top: "x" top: "y" dummy_data_param { num: 1 num: 2 num: 3 channels: 1 height: 1 width: 1 }',
        ("given once or 2 times",),
    ),
    Declared('type: "Parameter" top: "x" parameter_param { shape { dim: 2 dim: 0 } }', ("at least 1",)),
    Declared('type: "MemoryData" top: "x" memory_data_param { batch_size: 2 channels: 3 height: 5 }', ("width",)),
]


def refusal(case: Refused, folder: Path) -> pytest.ExceptionInfo[chai.ShapeError]:
    with pytest.raises(chai.ShapeError) as info:
        build(folder, case.type, case.body, case.shapes, case.tops)
    return info


def source_refusal(case: Declared, folder: Path) -> pytest.ExceptionInfo[chai.ShapeError]:
    path = folder / "net.prototxt"
    path.write_text(
        f'layer {{ name: "probe" {case.text} }}\nlayer {{ name: "a" type: "AbsVal" bottom: "x" top: "a" }}\n'
    )
    with pytest.raises(chai.ShapeError) as info:
        chai.Net(path, device="float")
    return info


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.type}-{c.words[0]}")
def test_a_refusal_names_layer_and_numbers(tmp_path: Path, case: Refused) -> None:
    error = refusal(case, tmp_path).value
    for word in (f"layer 'probe' ({case.type})", *case.words):
        assert word in error.message
    assert error.layer == "probe"
    line = 1 + len(case.shapes)  # one line per input
    assert error.message.startswith(f"{tmp_path / 'net.prototxt'}:{line}: ")


@pytest.mark.parametrize("case", SOURCES, ids=lambda c: c.text.split()[1].strip('"') + "-" + c.words[0])
def test_a_source_names_layer_and_numbers(tmp_path: Path, case: Declared) -> None:
    error = source_refusal(case, tmp_path).value
    for word in ("layer 'probe'", *case.words):
        assert word in error.message
    assert error.layer == "probe"


@pytest.mark.parametrize("case", SOURCES, ids=lambda c: c.text.split()[1].strip('"') + "-" + c.words[0])
def test_a_source_names_its_line(tmp_path: Path, case: Declared) -> None:
    assert source_refusal(case, tmp_path).value.message.startswith(f"{tmp_path / 'net.prototxt'}:1: ")


def test_what_exceeds_a_limit_does(tmp_path: Path) -> None:
    """The number that a message holds against a limit is the larger one."""
    case = detect("num_classes: 1001", [(1, 400_000), (1, 100_100_000), (1, 2, 400_000)])
    message = refusal(case, tmp_path).value.message
    number, _, limit = message.rpartition("too many boxes: ")[2].partition(" exceeds the limit scores=")
    assert int(number.replace(",", "")) > int(limit.split()[0].replace(",", ""))


@pytest.mark.parametrize(
    ("type", "body", "words"),
    [
        ("BN", "bn_param { eps: -1 }", ("eps", "-1")),
        ("Tile", "tile_param { tiles: 0 }", ("tiles", "0")),
        ("Interp", "interp_param { pad_beg: 1 }", ("pad_beg", "1", "-65535 .. 0")),
        ("Pooling", "pooling_param { kernel_size: 0 }", ("kernel_size", "0", "1 .. 65535")),
        ("Convolution", "convolution_param { num_output: 4 kernel_size: 3 stride: 0 }", ("stride", "1 .. 65535")),
        (
            "Convolution",
            "convolution_param { num_output: 4 kernel_size: 3 pad: 70000 }",
            ("pad", "70000", "0 .. 65535"),
        ),
        ("Convolution", "convolution_param { num_output: 4 kernel_size: 3 group: 0 }", ("group", "1 .. 65535")),
        ("ReLU", "relu_param { negative_slope: nan }", ("negative_slope", "finite")),
        ("Proposal", "proposal_param { feat_stride: 0 }", ("feat_stride", "1 .. 65535")),
        ("Proposal", "proposal_param { min_size: 4294967295 }", ("min_size", "0 .. 65535")),
        ("Proposal", "proposal_param { ratio: [1, 0] }", ("ratio", "0")),
        ("Proposal", "proposal_param { scale: -8 }", ("scale", "-8")),
        ("Proposal", "proposal_param { pre_nms_topn: 0 }", ("pre_nms_topn", "0")),
        ("Proposal", "proposal_param { post_nms_topn: 0 }", ("post_nms_topn", "0")),
        ("Proposal", "proposal_param { nms_thresh: nan }", ("nms_thresh", "nan")),
        ("ArgMax", "argmax_param { top_k: 0 }", ("top_k", "0")),
        ("Softmax", "softmax_param { axis: 40 }", ("axis", "40")),
        ("PriorBox", "prior_box_param { min_size: -1 }", ("min_size", "-1")),
    ],
)
def test_values_outside_their_range_are_shown_in_the_file(
    tmp_path: Path, type: str, body: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(chai.ParseError) as info:
        build(tmp_path, type, body, [IMAGE])
    for word in ("layer 'probe'", type, *words):
        assert word in info.value.message
    assert info.value.line == 3
    assert info.value.layer == "probe"


# -- nothing is left out


def raised_in_layers(error: BaseException) -> set[tuple[str, int]]:
    """(file, line) of the frames inside chai/layers."""
    home, places = Path(layers.__file__).parent, set()
    trace: Any = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.parent == home:
            places.add((file.name, trace.tb_lineno))
        trace = trace.tb_next
    return places


def refusals_of_layers() -> dict[tuple[str, int], range]:
    """Every ``raise self.wrong(...)``: its place, and the lines that it takes."""
    spans = {}
    for file in Path(layers.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Raise)
                and isinstance(node.exc, ast.Call)
                and ast.unparse(node.exc.func) == "self.wrong"
            ):
                assert node.end_lineno is not None
                spans[file.name, node.lineno] = range(node.lineno, node.end_lineno + 1)
    return spans


def test_every_refusal_is_met(tmp_path: Path) -> None:
    met: set[tuple[str, int]] = set()
    for case in CASES:
        met |= raised_in_layers(refusal(case, tmp_path).value)
    for source in SOURCES:
        met |= raised_in_layers(source_refusal(source, tmp_path).value)
    known = refusals_of_layers()
    assert len(known) > 40
    unmet = [
        f"{file}:{line}"
        for (file, line), lines in known.items()
        if file not in LOSSES and not any((file, at) in met for at in lines)
    ]
    assert unmet == []
