"""Convolution in C, or on BLAS.

On BLAS every function is one or a few matrix products; the im2col buffer is split into bands of output rows so that it
stays within ``COLUMNS`` bytes for any blob size.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import kernels
from ..blob import Array
from ..tasks.window import POINT, Filtering, Window
from ..util.lazy_numpy import np

COLUMNS = 4 << 20  # bytes of im2col buffer: a larger one leaves the cache, a smaller one makes thin matrix products


def conv2d(x: Array, weights: Array, bias: Array | None, filtering: Filtering) -> Array:
    """Convolve as Caffe: x (N, C, H, W), weights (M, C/group, kh, kw), bias (M,) -> (N, M, OH, OW), all float32."""
    if (layer := kernels.floats.convolution(x.shape, weights, bias, filtering)) is not None:
        return layer.run(x)
    window, group, rectified = filtering
    y = in_numpy(x, weights, window, group)
    if bias is not None:
        y += bias.reshape(-1, 1, 1)
    if rectified:
        np.maximum(y, 0, out=y)
    return y


def in_numpy(x: Array, weights: Array, window: Window, group: int, fill: int = 0) -> Array:
    """Convolve float32 or float64 without a bias; padding is ``fill``."""
    n, _, h, w = x.shape
    m, cg = weights.shape[:2]
    out = window.sizes((h, w))
    pointwise = window.kernel == window.stride == (1, 1) and window.pad == (0, 0)
    y = np.empty((n, m, *out), x.dtype)
    if cg == 1 and m == group and not pointwise:
        _depthwise(x, weights, y, window, fill)
    else:
        matrices = weights.reshape(group, m // group, -1)
        if pointwise:
            np.matmul(matrices, x.reshape(n, group, cg, h * w), out=y.reshape(n, group, m // group, h * w))
        else:
            for image, result in zip(x, y):
                maps = result.reshape(group, m // group, -1)
                for rows, band in _columns(image, window, group, fill):
                    np.matmul(matrices, band, out=maps[..., rows.start * out[1] : rows.stop * out[1]])
    return y


def inner_product(x: Array, weights: Array, bias: Array | None, rectified: bool = False) -> Array:
    """Return x W' + bias: x (N, K), weights (M, K), bias (M,) -> (N, M), all float32.

    If it is ``rectified``, numbers below 0 are 0.
    """
    n, k = x.shape
    if (layer := kernels.floats.inner_product((n, k), weights, bias, rectified)) is not None:
        return layer.run(x).reshape(n, -1)
    # weights are stored as (K, M): outputs are the pixels of one image, and each x is a filter
    layer = kernels.floats.convolution((1, k, 1, len(weights)), x.reshape(n, k, 1, 1), None, Filtering(POINT))
    y: Array = np.matmul(x, weights.T) if layer is None else layer.run(weights.T.reshape(1, k, 1, -1)).reshape(n, -1)
    if bias is not None:
        y += bias
    if rectified:
        np.maximum(y, 0, out=y)
    return y


def deconv2d(x: Array, weights: Array, bias: Array | None, window: Window, group: int) -> Array:
    """Deconvolve as Caffe: x (N, C, H, W), weights (C, M/group, kh, kw), bias (M,) -> (N, M, OH, OW), all float32."""
    n, c, h, w = x.shape
    mg = weights.shape[1]
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = window
    oh, ow = (s * (size - 1) + window.extent(i) - 2 * p for i, (s, size, p) in enumerate(((sh, h, ph), (sw, w, pw))))
    full = np.zeros((n, group, mg, oh + 2 * ph, ow + 2 * pw), np.float32)
    matrices = weights.reshape(group, c // group, mg, kh * kw)
    pixels = x.reshape(n, group, c // group, h * w)
    band = max(1, COLUMNS // (4 * group * kh * kw * h * w))  # output maps at a time
    for first in range(0, mg, band):
        part = matrices[:, :, first : first + band].reshape(group, c // group, -1).transpose(0, 2, 1)
        maps = part.shape[1] // (kh * kw)
        for source, target in zip(pixels, full[:, :, first : first + maps]):
            taps = np.matmul(part, source).reshape(group, maps, kh, kw, h, w)
            for i in range(kh):
                rows = slice(i * dh, i * dh + sh * (h - 1) + 1, sh)
                for j in range(kw):
                    target[:, :, rows, j * dw : j * dw + sw * (w - 1) + 1 : sw] += taps[:, :, i, j]
    y = full.reshape(n, group * mg, oh + 2 * ph, ow + 2 * pw)[:, :, ph : ph + oh, pw : pw + ow]
    return np.ascontiguousarray(y) if bias is None else y + bias.reshape(-1, 1, 1)


def _columns(image: Array, window: Window, group: int, fill: int) -> Iterator[tuple[slice, Array]]:
    """Yield bands of output rows with their columns, (group, K, pixels), of an image (C, H, W); K = C/group * kh * kw."""
    padded = _padded(image, window.pad, fill)
    cg = len(image) // group
    (kh, kw), (sh, sw), _, (dh, dw) = window
    oh, ow = window.sizes(image.shape[1:])
    c0, h0, w0 = padded.strides
    windows = np.lib.stride_tricks.as_strided(
        padded, (group, cg, kh, kw, oh, ow), (cg * c0, c0, dh * h0, dw * w0, sh * h0, sw * w0), writeable=False
    )
    k = cg * kh * kw
    rows = max(1, min(oh, COLUMNS // (image.itemsize * group * k * ow)))
    for first in range(0, oh, rows):
        last = min(oh, first + rows)
        yield slice(first, last), windows[..., first:last, :].reshape(group, k, -1)


def _padded(image: Array, pad: tuple[int, int], fill: int = 0) -> Array:
    if pad == (0, 0):
        return image
    c, h, w = image.shape
    padded = np.full((c, h + 2 * pad[0], w + 2 * pad[1]), fill, image.dtype)
    padded[:, pad[0] : pad[0] + h, pad[1] : pad[1] + w] = image
    return padded


def _depthwise(x: Array, weights: Array, y: Array, window: Window, fill: int) -> None:
    """Convolve one input channel per output channel: a product of whole maps per tap, without columns."""
    (kh, kw), (sh, sw), _, (dh, dw) = window
    oh, ow = y.shape[2:]
    taps = weights.reshape(-1, kh, kw, 1, 1)
    for image, result in zip(x, y):
        padded = _padded(image, window.pad, fill)
        result[:] = 0
        product = np.empty_like(result)
        for i in range(kh):
            rows = slice(i * dh, i * dh + sh * (oh - 1) + 1, sh)
            for j in range(kw):
                np.multiply(padded[:, rows, j * dw : j * dw + sw * (ow - 1) + 1 : sw], taps[:, i, j], out=product)
                result += product
