"""Layers that make a map of another size, and those that trade channels for pixels."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray
Pair = tuple[int, int]


def squares(x: Array, side: int) -> Array:
    """Every pixel as a square."""
    n, c, h, w = x.shape
    y = np.zeros((n, c, h * side, w * side))
    for image, channel, i, j in np.ndindex(y.shape):
        y[image, channel, i, j] = x[image, channel, i // side, j // side]
    return y


def unpooled(x: Array, places: Array, size: Pair) -> Array:
    """SegNet: x at the places of a map of ``size``, 0 elsewhere."""
    y = np.zeros((*x.shape[:2], *size))
    for image, channel, i, j in np.ndindex(x.shape):
        place = int(places[image, channel, i, j])
        y[image, channel, place // size[1], place % size[1]] = x[image, channel, i, j]
    return y


def nearest(x: Array, size: Pair, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
    """TensorFlow's nearest neighbour for x (N, C, H, W)."""
    y = np.zeros((*x.shape[:2], *size))
    for image, channel, *at in np.ndindex(y.shape):
        source = []
        for i in range(2):
            old, new = x.shape[2 + i], size[i]
            if align_corners and new > 1:
                place = math.floor(at[i] * (old - 1) / (new - 1) + 0.5)
            else:
                place = math.floor((at[i] + (0.5 if half_pixel_centers else 0)) * old / new)
            source.append(max(min(place, old - 1), 0))
        y[(image, channel, *at)] = x[(image, channel, *source)]
    return y


def bilinear(x: Array, size: Pair) -> Array:
    """Corners stay corners."""
    y = np.zeros((*x.shape[:2], *size))
    for image, channel, i, j in np.ndindex(y.shape):
        h = i * (x.shape[2] - 1) / (size[0] - 1) if size[0] > 1 else 0.0
        w = j * (x.shape[3] - 1) / (size[1] - 1) if size[1] > 1 else 0.0
        for row in (int(h), int(h) + 1):
            for column in (int(w), int(w) + 1):
                share = max(0.0, 1 - abs(h - row)) * max(0.0, 1 - abs(w - column))
                if share:
                    y[image, channel, i, j] += share * float(x[image, channel, row, column])
    return y


def darknet_reorg(x: Array, stride: int, reverse: bool) -> Array:
    """Darknet's loop over numbers that lie in a row, with C / (s * s) channels of (H * s, W * s) on the larger side."""
    n, c, h, w = x.shape
    few = c // (stride * stride)
    flat = [float(v) for v in x.ravel()]
    numbers = [0.0] * len(flat)
    for b in range(n):
        for k in range(c):
            for j in range(h):
                for i in range(w):
                    small = i + w * (j + h * (k + c * b))
                    part = k // few
                    column, row = i * stride + part % stride, j * stride + part // stride
                    large = column + w * stride * (row + h * stride * (k % few + few * b))
                    if reverse:
                        numbers[large] = flat[small]
                    else:
                        numbers[small] = flat[large]
    top = (n, few, h * stride, w * stride) if reverse else (n, c * stride * stride, h // stride, w // stride)
    return np.array(numbers).reshape(top)


def depth_to_space(x: Array, block: int, crd: bool) -> Array:
    """x (N, C, H, W); ``crd``: channels go before blocks."""
    n, c, h, w = x.shape
    few = c // (block * block)
    y = np.zeros((n, few, h * block, w * block))
    for image, d, i, j in np.ndindex(y.shape):
        down, right = i % block, j % block
        source = (d * block + down) * block + right if crd else (down * block + right) * few + d
        y[image, d, i, j] = x[image, source, i // block, j // block]
    return y


def shuffled(x: Array, group: int) -> Array:
    y = np.zeros(x.shape)
    size = x.shape[1] // group  # channels of a group
    for row in range(group):
        for column in range(size):
            y[:, column * group + row] = x[:, row * size + column]
    return y
