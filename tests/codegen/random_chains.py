"""Random networks and manifests by seed, for chains of each kind of Task, cut into images, bands and strips."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from chai import overlay as overlays
from tests.random_nets import TABLE, Parts, RandomNet, eltwise
from tests.reference import arrangement, elementwise, resampling, window

NAMES = "pynq-z2", "ultra96", "kv260", "zcu104", "zcu102"
SIZES = (1, 1, 2, 3, 5), (1, 3, 4, 8, 16, 20), (5, 7, 9, 12, 17, 24), (5, 6, 8, 13, 20, 33)
LARGEST = 3000  # pixels of a map that grows


def random_chains(seed: int, batch: int) -> RandomNet:
    """The network of a seed, of ``batch`` images or fewer."""
    return RandomNet(seed, (tuple(min(images, batch) for images in SIZES[0]), *SIZES[1:]), KINDS)


def convolved(net: RandomNet, bottom: str, m: int, kernel: int, group: int = 1, stride: int = 1) -> Parts:
    """A convolution that keeps the map's size if its stride is 1."""
    n, c, *size = net.shapes[bottom]
    w, b = net._normal(m, c // group, kernel, kernel, scale=(c // group) ** -0.5 / kernel), net._normal(m)
    out, geometry = [-(-s // stride) for s in size], ((stride,) * 2, (kernel // 2,) * 2, (1, 1), group)
    fields = f"convolution_param {{ num_output: {m} kernel_size: {kernel} pad: {kernel // 2} group: {group} stride: {stride} }}"
    compute = lambda x: [window.convolution(x, w, b, *geometry)]  # noqa: E731
    return "Convolution", [bottom], fields, [(n, m, *out)], compute, (w, b)


def add(net: RandomNet, parts: Any) -> str:
    """Add a layer; return its first top."""
    net._add(*parts)
    return net.steps[-1].tops[0]


def depthwise(net: RandomNet) -> Parts:
    bottom = net._blob()
    if bottom is None:
        return None
    channels = net.shapes[bottom][1]
    return convolved(net, bottom, channels, net._one(3, 3, 3, 5), channels, net._one(1, 1, 2, 3))


def block(net: RandomNet) -> Parts:
    """A convolution, a ReLU and a MAX pooling, one after the other."""
    bottom, (kernel, stride) = net._blob(), net._one((2, 2), (3, 2), (3, 3))
    if bottom is None:
        return None
    top = add(net, convolved(net, bottom, net._one(8, 12, 24), net._one(1, 3)))
    n, c, *size = net.shapes[top]
    if min(size) < kernel:
        return None
    top = add(net, ("ReLU", [top], "", [net.shapes[top]], lambda x: [elementwise.relu(x)], (), True))
    pad = net._one(0, 1)
    out = [window.pooled(s, kernel, stride, pad, pad > 0) for s in size]
    fields = f"pooling_param {{ pool: MAX kernel_size: {kernel} stride: {stride} pad: {pad} }}"
    compute = lambda x: [window.pooling(x, "MAX", (kernel,) * 2, (stride,) * 2, (pad,) * 2)]  # noqa: E731
    return "Pooling", [top], fields, [(n, c, *out)], compute


def leaky_sum(net: RandomNet) -> Parts:
    parts = eltwise(net)
    if parts is None:
        return None
    top = add(net, parts)
    fields = "relu_param { negative_slope: 0.3 }"
    return "ReLU", [top], fields, [net.shapes[top]], lambda x: [elementwise.relu(x, 0.3)], (), True


def fire(net: RandomNet) -> Parts:
    """A Concat of two convolutions of one blob."""
    bottom = net._blob()
    if bottom is None:
        return None
    a, b = (add(net, convolved(net, bottom, net._one(5, 8, 16, 24), kernel)) for kernel in (1, 3))
    n, c, *size = net.shapes[a]
    return "Concat", [a, b], "", [(n, c + net.shapes[b][1], *size)], lambda *x: [arrangement.concat(x, 1)]


def squeeze_excite(net: RandomNet) -> Parts:
    """A number for each channel, from its average, that scales the map."""
    bottom = net._blob()
    if bottom is None:
        return None
    n, c, *_ = shape = net.shapes[bottom]
    mean = lambda x: [x.astype(float).mean((2, 3), keepdims=True)]  # noqa: E731
    top = add(net, ("Pooling", [bottom], "pooling_param { pool: AVE global_pooling: true }", [(n, c, 1, 1)], mean))
    top = add(net, convolved(net, top, c, 1))
    top = add(net, ("Sigmoid", [top], "", [(n, c, 1, 1)], lambda x: [elementwise.sigmoid(x)]))
    top = add(net, ("Flatten", [top], "", [(n, c)], lambda x: [x.reshape(n, c)]))
    return "Scale", [bottom, top], "scale_param { axis: 0 }", [shape], lambda x, y: [elementwise.scale(x, y, 0)]


def shuffle(net: RandomNet) -> Parts:
    bottom = net._blob()
    if bottom is None:
        return None
    shape = net.shapes[bottom]
    group = net._one(*(g for g in range(1, shape[1] + 1) if shape[1] % g == 0))
    fields = f"shuffle_channel_param {{ group: {group} }}"
    return "ShuffleChannel", [bottom], fields, [shape], lambda x: [resampling.shuffled(x, group)]


def crop(net: RandomNet) -> Parts:
    """To the size of another blob, where there is one that is not larger."""
    bottom = net._blob()
    if bottom is None:
        return None
    n, c, h, w = net.shapes[bottom]
    smaller = [b for b, s in net.shapes.items() if len(s) == 4 and s[2] <= h and s[3] <= w and b not in net.inputs]
    like = net._one(*smaller)
    size = net.shapes[like][2:]
    offset = [int(net.draw.integers(space + 1)) for space in (h - size[0], w - size[1])]
    fields = f"crop_param {{ axis: 2 offset: {offset[0]} offset: {offset[1]} }}"
    compute = lambda x, y: [arrangement.crop(x, y.shape, 2, offset)]  # noqa: E731
    return "Crop", [bottom, like], fields, [(n, c, *size)], compute


def enlarged(net: RandomNet) -> Parts:
    """Each pixel as a square, or a bilinear Deconvolution."""
    bottom, side = net._blob(), net._one(2, 2, 3, 4)
    if bottom is None:
        return None
    n, c, *size = net.shapes[bottom]
    if size[0] * size[1] * side**2 > LARGEST:
        return None
    kernel, pad = (side, 0) if net.draw.random() < 0.4 else (2 * side - side % 2, -(-(side - 1) // 2))
    ramp = 1 - np.abs(np.arange(kernel) - (kernel - 1) / 2) / side if pad else np.ones(kernel)
    w = np.broadcast_to(np.outer(ramp, ramp).astype(np.float32), (c, 1, kernel, kernel)).copy()
    fields = f"num_output: {c} group: {c} kernel_size: {kernel} stride: {side} pad: {pad} bias_term: false"
    compute = lambda x: [window.deconvolution(x, w, None, (side,) * 2, (pad,) * 2, (1, 1), c)]  # noqa: E731
    return (
        "Deconvolution",
        [bottom],
        f"convolution_param {{ {fields} }}",
        [(n, c, *(s * side for s in size))],
        compute,
        (w,),
    )


def reorg(net: RandomNet) -> Parts:
    """Darknet's order of the pixels of squares, as channels."""
    bottom = net._blob()
    if bottom is None:
        return None
    n, c, h, w = net.shapes[bottom]
    if h % 2 or w % 2 or c % 4:
        return None
    shape = n, 4 * c, h // 2, w // 2
    compute = lambda x: [resampling.darknet_reorg(x, 2, False)]  # noqa: E731
    return "Reorg", [bottom], "reorg_param { stride: 2 }", [shape], compute


def unpool(net: RandomNet) -> Parts:
    """SegNet's pooling, and its maxima back in their places."""
    bottom = net._blob()
    if bottom is None:
        return None
    n, c, h, w = shape = net.shapes[bottom]
    if h % 2 or w % 2:
        return None
    fields, half = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }", (n, c, h // 2, w // 2)
    top, places = f"{bottom}{len(net.steps)}", f"{bottom}{len(net.steps)}_places"
    net._add("Pooling", [bottom], fields, [half] * 2, _largest)
    top, places = net.steps[-1].tops
    del net.shapes[places]  # no blob for others
    fields = f"upsample_param {{ upsample_h: {h} upsample_w: {w} }}"
    return "Upsample", [top, places], fields, [shape], lambda x, at: [resampling.unpooled(x, at, (h, w))]


def _largest(x: np.ndarray) -> list[np.ndarray]:
    """The largest of each 2 x 2 pixels, and where they are in the map."""
    n, c, h, w = x.shape
    places = np.arange(h * w).reshape(h // 2, 2, w // 2, 2).transpose(0, 2, 1, 3).reshape(h // 2, w // 2, 4)
    squares = x.reshape(n, c, -1)[:, :, places]
    return [
        squares.max(4),
        np.take_along_axis(np.broadcast_to(places, squares.shape), squares.argmax(4)[..., None], 4)[..., 0],
    ]


KINDS = TABLE | {
    block: 14, leaky_sum: 5, depthwise: 8, fire: 8, squeeze_excite: 3, shuffle: 3, crop: 3, enlarged: 5, reorg: 2, unpool: 2,
}  # fmt: skip

LIMITS: dict[str, tuple[Any, ...]] = {
    "kernel_max": (1, 2, 3, 5), "stride_max": (1, 2, 3), "pad_max": (0, 1, 2, 3), "dilation_max": (1, 2),
    "group_max": (1, 2, 8), "leaky": (False,), "prelu": (False,), "lookup": (False,), "depthwise": (False,),
    "vector": (False,), "fold": (False,), "channels_max": (16, 24, 40, 64, 100), "size_max": (8, 13, 20, 40),
    "pool_kernel_max": (1, 2, 3), "pool_columns_max": (1, 8, 30, 100), "global_max": (1, 8, 20),
    "local_size_max": (1, 3, 4, 5), "factor_max": (1, 2, 3), "columns_max": (5, 8, 16), "methods": (["MAX"], ["AVE"]),
    "operations": (["SUM"], ["MAX"], ["SUM", "PROD"], ["PROD"]),
}  # fmt: skip
SECTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "buffers.input": {"depth": (32, 64, 128, 200, 512)},
    "buffers.weights": {"depth": (16, 32, 64, 256)},
    "buffers.accumulators": {"depth": (4, 8, 16, 64)},
    "buffers.pool": {"depth": (1, 8, 32)},
    "window": {"bands": (False,)},
    "requant": {"shift_max": (8, 16, 24), "mult_bits": (8, 12)},
    "": {"batch_max": (1, 2, 4), "unsigned": (False,), "bits": ([8], [6]), "accumulator_bits": (18, 20)},
}
WHOLE = "memory_port", "wide_bits"  # what a manifest may lack


def write_manifest(seed: int, path: Path) -> Any:
    """Write a manifest that exists, with limits, memories and units that are smaller or missing; return it."""
    draw = Random(seed)
    manifest = json.loads(overlays.load(draw.choice(NAMES)).path.read_text())
    tasks = manifest["tasks"]
    for kind in [kind for kind in tasks if kind != "conv" and draw.random() < 0.1]:
        del tasks[kind]
    for limits in tasks.values():
        _change(draw, limits, LIMITS, 0.15)
    for name, values in SECTIONS.items():
        section = manifest
        for key in filter(None, name.split(".")):
            section = section[key]
        _change(draw, section, values, 0.35)
    for name in WHOLE:
        if draw.random() < 0.15:
            manifest.pop(name, None)
    path.write_text(json.dumps(manifest))
    return manifest


def _change(draw: Random, section: dict[str, Any], values: dict[str, tuple[Any, ...]], chance: float) -> None:
    for name, choices in values.items():
        if name in section and draw.random() < chance:
            section[name] = draw.choice(choices)
