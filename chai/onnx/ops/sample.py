"""Maps that are read at places which other blobs have."""

from __future__ import annotations

from ...util.lazy_numpy import np
from ..node import OnnxNode
from ..refusal import Refused
from . import operator

_MODES = {"linear": "LINEAR", "bilinear": "LINEAR", "nearest": "NEAREST", "cubic": "CUBIC", "bicubic": "CUBIC"}


@operator("GridSample")
def grid_sample(node: OnnxNode) -> None:
    mode, outside = node.attributes.text("mode", "linear"), node.attributes.text("padding_mode", "zeros").upper()
    if mode not in _MODES or outside not in ("ZEROS", "BORDER", "REFLECTION"):
        raise Refused(f"mode {mode!r} with padding_mode {outside.lower()!r}")
    corners = bool(node.attributes.integer("align_corners", 0))
    node.result("GridSample", node.input(0), node.input(1), mode=_MODES[mode], outside=outside, align_corners=corners)


@operator("RoiAlign")
def roi_align(node: OnnxNode) -> None:
    read = node.attributes
    if read.text("mode", "avg") != "avg":
        raise Refused("mode max, which is not the maximum of the samples in all runtimes")
    rule = read.text("coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel")
    if rule not in ("half_pixel", "output_half_pixel"):
        raise Refused(f"coordinate_transformation_mode {rule!r}")
    if node.is_constant(2):
        images = node.constant_blob(np.array(node.whole(2, "batch_indices"), np.float32))
    else:
        images = node.input(2)
    node.result(
        "RoiAlign",
        node.input(0),
        node.input(1),
        images,
        pooled_h=read.integer("output_height", 1),
        pooled_w=read.integer("output_width", 1),
        spatial_scale=read.number("spatial_scale", 1.0),
        sampling_ratio=read.integer("sampling_ratio", 0),
        half_pixel=rule == "half_pixel",
    )
