"""Maps read at other places: Resize and its older form Upsample, GridSample and RoiAlign."""

from __future__ import annotations

from math import floor, inf
from typing import Any

from ...text import number_of
from ...util.lazy_numpy import np
from ..node import OnnxNode
from ..refusal import Refused
from . import operator

_POLICIES = {"not_larger": min, "not_smaller": max}
_MODES = {"linear": "LINEAR", "bilinear": "LINEAR", "nearest": "NEAREST", "cubic": "CUBIC", "bicubic": "CUBIC"}


@operator("Resize", "Upsample")
def resize(node: OnnxNode) -> None:
    shape, attributes = node.shape(), node.attributes
    rank, rule = len(shape), attributes.text("coordinate_transformation_mode")
    axes = [node.axis(axis, rank) for axis in attributes.integers("axes") or range(rank)]
    scales, sizes = _scales(node, axes, rank), _sizes(node, axes)
    if sizes is None and scales is None:
        raise Refused("neither its scales nor its sizes are given")
    if sizes is None:
        assert scales is not None
        exact = [float(np.float32(size) * np.float32(scale)) for size, scale in zip(shape, scales)]  # as onnxruntime
        sizes = [*map(floor, exact)]
        if exact != sizes and rule == "align_corners":
            raise Refused("align_corners with a size that is rounded, on which ONNX and its runtimes do not agree")
    elif (policy := _POLICIES.get(attributes.text("keep_aspect_ratio_policy", "stretch"))) is not None:
        scale = policy(sizes[axis] / shape[axis] for axis in axes)
        scales = [scale if axis in axes else 1.0 for axis in range(rank)]
        sizes = [floor(size * s + 0.5) if axis in axes else size for axis, (size, s) in enumerate(zip(shape, scales))]
    if tuple(sizes) == shape and rule != "tf_crop_and_resize":
        node.same(node.input())
        return
    if min(sizes) < 1:
        raise Refused("a blob without numbers")
    kept = [0 if size == new else new for size, new in zip(shape, sizes)]
    node.for_one_batch([size for size, new in zip(shape, kept) if new])
    node.result("Resize", node.input(), size=tuple(kept), scale=tuple(scales or ()), **_rules(node, axes, scales or []))


def _rules(node: OnnxNode, axes: list[int], scales: list[float]) -> dict[str, Any]:
    """Return mode and coordinates: since opset 11 they are attributes; before it, pixels are at i / scale."""
    read, rank = node.attributes, len(node.shape())
    old = node.operator == "Upsample" or node.opset < 11
    rule = read.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    mode = read.text("mode", "nearest")
    nearest = read.text("nearest_mode", "floor" if old else "round_prefer_floor")
    if old and mode == "nearest" and min(scales, default=1.0) < 1:
        nearest = "ceil"  # as onnxruntime: up in a smaller map, down in a larger one
        if max(scales) > 1:
            raise Refused(f"scales {scales}, of which some are below and some above 1")
    if (rule, nearest) == ("tf_half_pixel_for_nn", "floor"):  # half a pixel further is rounded down: the same pixel
        rule, nearest = "half_pixel", "round_prefer_ceil"
    params: dict[str, Any] = {
        "mode": "LINEAR" if mode == "bilinear" else mode.upper(),
        "coordinates": rule.upper(),
        "nearest": nearest.upper(),
        "cubic": read.number("cubic_coeff_a", -0.75),
        "exclude_outside": bool(read.integer("exclude_outside", 0)),
        "antialias": bool(read.integer("antialias", 0)),
        "outside": read.number("extrapolation_value", 0.0),
    }
    if rule == "tf_crop_and_resize":
        corners = [float(v) for v in node.constant(1, "roi").reshape(-1)]
        if len(corners) != 2 * len(axes):
            raise Refused(f"{number_of(len(corners), 'number')} of roi for {number_of(len(axes), 'axis')}")
        roi = [0.0] * rank + [1.0] * rank
        for i, axis in enumerate(axes):
            roi[axis], roi[rank + axis] = corners[i], corners[i + len(axes)]
        params["roi"] = tuple(roi)
    return params


def _scales(node: OnnxNode, axes: list[int], rank: int) -> list[float] | None:
    """Return a scale for each axis: an attribute of Upsample 7, else an input."""
    values = node.attributes.floats("scales")
    index = 1 if node.operator == "Upsample" or node.opset < 11 else 2
    if values is None and node.has(index):
        values = tuple(map(float, node.constant(index, "scales").reshape(-1)))
    return None if not values else _spread(values, axes, [1.0] * rank, "scales")


def _sizes(node: OnnxNode, axes: list[int]) -> list[int] | None:
    if node.operator == "Upsample" or not node.has(3) or not node.constant(3, "sizes").size:
        return None
    return _spread(node.whole(3, "sizes"), axes, list(node.shape()), "sizes")


def _spread(values: Any, axes: list[int], default: list[Any], what: str) -> list[Any]:
    """Return ``default`` with the values of some axes."""
    if len(values) != len(axes) or not all(0 < value < inf for value in values):
        raise Refused(f"{what} {list(values)} for {number_of(len(axes), 'axis')}")
    for axis, value in zip(axes, values):
        default[axis] = value
    return default


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
