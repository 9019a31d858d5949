"""Convolution, Deconvolution, Local and Pooling, pixel by pixel."""

from __future__ import annotations

from math import ceil, floor, nan

import numpy as np

Array = np.ndarray
Pair = tuple[int, int]
FLT_MAX = float(np.finfo(np.float32).max)


def convolution(
    x: Array, w: Array, b: Array | None, stride: Pair, pad: Pair, dilation: Pair = (1, 1), group: int = 1
) -> Array:
    """x (N, C, H, W), w (M, C/group, kh, kw), b (M,) or None."""
    n, _, height, width = x.shape
    m, per_group, kh, kw = w.shape
    oh = (height + 2 * pad[0] - (dilation[0] * (kh - 1) + 1)) // stride[0] + 1
    ow = (width + 2 * pad[1] - (dilation[1] * (kw - 1) + 1)) // stride[1] + 1
    y = np.zeros((n, m, oh, ow))
    for image, out, row, column in np.ndindex(y.shape):
        first = out // (m // group) * per_group  # first channel of this output's group
        total = 0.0 if b is None else float(b[out])
        for c, i, j in np.ndindex(per_group, kh, kw):
            h = row * stride[0] - pad[0] + i * dilation[0]
            v = column * stride[1] - pad[1] + j * dilation[1]
            if 0 <= h < height and 0 <= v < width:
                total += float(w[out, c, i, j]) * float(x[image, first + c, h, v])
        y[image, out, row, column] = total
    return y


def columns(x: Array, kernel: Pair, stride: Pair, before: Pair, after: Pair, dilation: Pair) -> Array:
    """The pixels that a convolution multiplies at each place, as channels."""
    n, channels, height, width = x.shape
    span = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    oh = (height + before[0] + after[0] - span[0]) // stride[0] + 1
    ow = (width + before[1] + after[1] - span[1]) // stride[1] + 1
    y = np.zeros((n, channels * kernel[0] * kernel[1], oh, ow))
    for image, channel, row, column in np.ndindex(y.shape):
        h = row * stride[0] - before[0] + channel // kernel[1] % kernel[0] * dilation[0]
        v = column * stride[1] - before[1] + channel % kernel[1] * dilation[1]
        if 0 <= h < height and 0 <= v < width:
            y[image, channel, row, column] = x[image, channel // (kernel[0] * kernel[1]), h, v]
    return y


def deconvolution(
    x: Array, w: Array, b: Array | None, stride: Pair, pad: Pair, dilation: Pair = (1, 1), group: int = 1
) -> Array:
    """x (N, C, H, W), w (C, M/group, kh, kw), b (M,) or None."""
    n, channels, height, width = x.shape
    _, per_group, kh, kw = w.shape
    oh = stride[0] * (height - 1) + dilation[0] * (kh - 1) + 1 - 2 * pad[0]
    ow = stride[1] * (width - 1) + dilation[1] * (kw - 1) + 1 - 2 * pad[1]
    y = np.zeros((n, per_group * group, oh, ow))
    if b is not None:
        for image, out, row, column in np.ndindex(y.shape):
            y[image, out, row, column] = float(b[out])
    for image, c, h, v in np.ndindex(x.shape):
        first = c // (channels // group) * per_group  # first output of this channel's group
        for out, i, j in np.ndindex(per_group, kh, kw):
            row = h * stride[0] - pad[0] + i * dilation[0]
            column = v * stride[1] - pad[1] + j * dilation[1]
            if 0 <= row < oh and 0 <= column < ow:
                y[image, first + out, row, column] += float(w[c, out, i, j]) * float(x[image, c, h, v])
    return y


def bordered(x: Array, before: Pair, after: Pair) -> Array:
    """x with zeros around: ``before`` above and left, ``after`` below and right."""
    n, c, height, width = x.shape
    y = np.zeros((n, c, height + before[0] + after[0], width + before[1] + after[1]))
    for image, channel, h, v in np.ndindex(x.shape):
        y[image, channel, h + before[0], v + before[1]] = x[image, channel, h, v]
    return y


def trimmed(y: Array, before: Pair, after: Pair) -> Array:
    """y without ``before`` rows and columns above and left, and ``after`` below and right."""
    return y[:, :, before[0] : y.shape[2] - after[0], before[1] : y.shape[3] - after[1]]


def local(x: Array, w: Array, b: Array | None, kernel: int, stride: int, pad: int) -> Array:
    """w (M, 1, C * k * k, OH * OW), b (1, 1, M, OH * OW) or None."""
    n, channels, height, width = x.shape
    oh, ow = ((size + 2 * pad - kernel) // stride + 1 for size in (height, width))
    y = np.zeros((n, w.shape[0], oh, ow))
    for image, out, row, column in np.ndindex(y.shape):
        place = row * ow + column
        total = 0.0 if b is None else float(b[0, 0, out, place])
        for c, i, j in np.ndindex(channels, kernel, kernel):
            h, v = row * stride - pad + i, column * stride - pad + j
            if 0 <= h < height and 0 <= v < width:
                total += float(w[out, 0, (c * kernel + i) * kernel + j, place]) * float(x[image, c, h, v])
        y[image, out, row, column] = total
    return y


def pooled(
    size: int, kernel: int, stride: int, pad: int, padded: bool, up: bool = True, after: int | None = None
) -> int:
    """Caffe's output size on one axis; ``padded``: whether either axis has padding; ``after``: that behind the image."""
    out = int((ceil if up else floor)((size + pad + (pad if after is None else after) - kernel) / stride)) + 1
    if padded and (out - 1) * stride >= size + pad:  # the last window would start behind the image
        out -= 1
    return out


def pooling(
    x: Array, kind: str, kernel: Pair, stride: Pair, pad: Pair, up: bool = True, after: Pair | None = None
) -> Array:
    """``kind`` is MAX, PLACE (of the maximum), AVE, AVE_EXC_PAD or STOCHASTIC; ``after``: padding behind the image.

    A window without a pixel gives -FLT_MAX, -1 or 0; an average is 0 / area there, as in Caffe, so NaN if that is 0, too.
    """
    n, channels, *size = x.shape
    after = after or pad
    some = any(pad + after)
    oh, ow = (pooled(size[i], kernel[i], stride[i], pad[i], some, up, after[i]) for i in range(2))
    y = np.zeros((n, channels, oh, ow))
    for image, c, row, column in np.ndindex(y.shape):
        top, left = row * stride[0] - pad[0], column * stride[1] - pad[1]
        # the area counts padding, up to the padded image's end
        area = (min(top + kernel[0], size[0] + after[0]) - top) * (min(left + kernel[1], size[1] + after[1]) - left)
        seen = [
            float(x[image, c, h, v])
            for h in range(max(top, 0), min(top + kernel[0], size[0]))
            for v in range(max(left, 0), min(left + kernel[1], size[1]))
        ]
        if kind == "MAX":
            y[image, c, row, column] = max([-FLT_MAX, *seen])
        elif kind == "PLACE":
            y[image, c, row, column] = -1
            for h in range(max(top, 0), min(top + kernel[0], size[0])):
                for v in range(max(left, 0), min(left + kernel[1], size[1])):
                    if x[image, c, h, v] == max(seen) and y[image, c, row, column] == -1:
                        y[image, c, row, column] = h * size[1] + v
        elif kind == "STOCHASTIC":
            y[image, c, row, column] = sum(v * v for v in seen) / sum(seen) if seen and sum(seen) else 0.0
        elif kind == "AVE_EXC_PAD":
            pixels = [min(at + k, n) - max(at, 0) for at, k, n in zip((top, left), kernel, size)]
            y[image, c, row, column] = sum(seen) / (pixels[0] * pixels[1]) if all(pixels) else nan
        else:
            y[image, c, row, column] = sum(seen) / area if area else nan
    return y
