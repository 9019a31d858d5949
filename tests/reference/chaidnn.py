"""CHaiDNN-v2's arithmetic, one number at a time in Python's integers, register by register.

Each register is emptied of the bits above its width after every step, as hardware does; the package adds whole sums first.
Functions that count say how often a register lost bits or reached an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, exp

import numpy as np

Array = np.ndarray


def held(value: int, bits: int, events: Counter[str] | None = None, name: str = "") -> int:
    """The value that a register of so many bits holds."""
    kept = value % (1 << bits)
    kept = kept - (1 << bits) if kept >> (bits - 1) else kept
    if events is not None and kept != value:
        events[name] += 1
    return kept


def limited(value: int, bits: int) -> int:
    return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, value))


def chunk_count(channels: int, taps: int) -> int:
    count = 1
    while (ceil(channels / 4) * 4 / count / 4) * taps > 511.5:
        count += count
    return count


def buffered(total: int, chunk: int, events: Counter[str]) -> int:
    """The sum in the buffer after one more chunk: an end of the range is never left."""
    top, bottom = 131071, -131072
    if top in (total, chunk):
        events["sticky"] += 1
        return top
    if bottom in (total, chunk):
        events["sticky"] += 1
        return bottom
    return limited(total + chunk, 18)


def chunk_sums(pairs: Sequence[tuple[int, int, int, int]], six: bool, events: Counter[str]) -> tuple[int, int]:
    """The sums of both images from (channel, weight, code of image 0, code of image 1), after saturation to 18 bits."""
    if six:
        lanes = [0, 0]
        for channel, weight, first, second in pairs:
            lane = 1 if channel % 4 >= 2 else 0
            lanes[lane] = held(lanes[lane] + ((second << 20) + first) * weight, 42)
        low = [held(lane % (1 << 20), 20) for lane in lanes]
        high = [held((lane >> 20) % (1 << 20) + (lane >> 19) % 2, 20) for lane in lanes]
        exact = [
            [sum(p[1] * p[2 + i] for p in pairs if (p[0] % 4 >= 2) == bool(lane)) for lane in (0, 1)] for i in (0, 1)
        ]
        events["lane"] += [low, high] != exact
        one = held(low[0] + low[1], 24)
        two = held(high[0] + high[1], 20, events, "pair")
        return limited(one, 18), limited(two, 18)
    sums = []
    for image in (2, 3):
        lanes = [0, 0]
        for pair in pairs:
            lane = 1 if pair[0] % 4 >= 2 else 0
            lanes[lane] = held(lanes[lane] + pair[1] * pair[image], 24, events, "lane")
        total = held(lanes[0] + lanes[1], 24, events, "lane")
        sums.append(limited(total, 18))
    return sums[0], sums[1]


def requantized(total: int, multiplier: int, bias: int, shift: int, six: bool, relu: bool, events: Counter[str]) -> int:
    """The code of a buffered sum."""
    value = held(total * multiplier + bias, 32, events, "product")
    size = held(abs(value) + 2 ** (shift - 1), 32) >> shift
    result = held(-size if value < 0 else size, 18)
    if relu and (result >> 17) & 1:
        return 0
    return limited(result, 6 if six else 8)


def convolution(
    x: Array,
    weights: Array,
    bias: Sequence[int],
    multipliers: Sequence[int],
    shift: int,
    stride: int,
    pad: int,
    dilation: int,
    group: int,
    six: bool,
    relu: bool,
) -> tuple[Array, Counter[str]]:
    """Codes (N, M, OH, OW) of a convolution, and how often its registers lost bits or reached an end, by name."""
    n, _, height, width = x.shape
    m, own, k, _ = weights.shape
    oh = (height + 2 * pad - (dilation * (k - 1) + 1)) // stride + 1
    ow = (width + 2 * pad - (dilation * (k - 1) + 1)) // stride + 1
    events: Counter[str] = Counter()
    result = np.zeros((n, m, oh, ow), np.int64)
    chunk = ceil(own / 4) * 4 // chunk_count(own, k * k)
    for first in range(0, n, 2):
        second = min(first + 1, n - 1)
        for f, i, j in np.ndindex(m, oh, ow):
            base = f // (m // group) * own
            totals = [0, 0]
            for start in range(0, own, chunk):
                pairs = []
                for c in range(start, min(start + chunk, own)):
                    for ki, kj in np.ndindex(k, k):
                        row, column = i * stride + ki * dilation - pad, j * stride + kj * dilation - pad
                        if 0 <= row < height and 0 <= column < width:
                            one, two = int(x[first, base + c, row, column]), int(x[second, base + c, row, column])
                            pairs.append((c, int(weights[f, c, ki, kj]), one, two))
                sums = chunk_sums(pairs, six, events)
                events["saturated"] += any(s in (131071, -131072) for s in sums)
                totals = [buffered(total, own_sum, events) for total, own_sum in zip(totals, sums)]
            for image, total in ((first, totals[0]), (second, totals[1])):
                result[image, f, i, j] = requantized(total, multipliers[f], bias[f], shift, six, relu, events)
                if first == second:
                    result[image, f, i, j] = requantized(totals[0], multipliers[f], bias[f], shift, six, relu, events)
                    break
    return result, events


def maximum(x: Array, kernel: int, stride: int, pad: int, out: tuple[int, int], standalone: bool) -> Array:
    """Codes of a maximum: taps outside the image are 0, and in the unit of its own some begin with 0."""
    n, channels, height, width = x.shape
    result = np.zeros((n, channels, *out), np.int64)
    band = max(1, 2048 // width)
    for b, c, i, j in np.ndindex(n, channels, *out):
        rows = min(band, out[0] - i // band * band)
        in_band, half = i % band, rows // 2
        begins = in_band == 0 or in_band == half or (rows % 2 == 1 and in_band == rows - 1)
        best = 0 if standalone and begins and j == 0 else -128
        for ki, kj in np.ndindex(kernel, kernel):
            row, column = i * stride + ki - pad, j * stride + kj - pad
            inside = 0 <= row < height and 0 <= column < width
            best = max(best, int(x[b, c, row, column]) if inside else 0)
        result[b, c, i, j] = best
    return result


def average(
    x: Array, kernel: int, stride: int, pad: int, out: tuple[int, int], multiplier: int, shift: int
) -> tuple[Array, Counter[str]]:
    """Codes of an average, and how many of its results lost bits."""
    n, channels, height, width = x.shape
    result, events = np.zeros((n, channels, *out), np.int64), Counter[str]()
    for b, c, i, j in np.ndindex(n, channels, *out):
        total = 0
        for ki, kj in np.ndindex(kernel, kernel):
            row, column = i * stride + ki - pad, j * stride + kj - pad
            if 0 <= row < height and 0 <= column < width:
                total += int(x[b, c, row, column])
        result[b, c, i, j] = held(held(total * multiplier, 24) >> shift, 8, events, "code")
    return result, events


def normalised(
    x: Array, mean: Sequence[int], factor: Sequence[int], addend: Sequence[int], left: int, shift: int, six: bool
) -> tuple[Array, Counter[str]]:
    """Codes of a BatchNorm with its Scale from its tables, and how often its registers lost bits."""
    result, events = np.zeros(x.shape, np.int64), Counter[str]()
    for at in np.ndindex(x.shape):
        c = at[1]
        total = held((int(x[at]) * 256 - mean[c]) * factor[c] + addend[c] * 2**left, 32, events, "product")
        code = limited(held(total >> shift, 16, events, "result"), 6 if six else 8)
        result[at] = max(code, 0)
    return result, events


def softmax(x: Sequence[float]) -> list[np.float32]:
    """Probabilities of one image's scores (float32), one number at a time; a distance below 0.01 has the exp of none."""
    table, argument = [], np.float32(-10)
    for _ in range(1000):
        table.append(np.float32(f"{float(np.float32(exp(float(argument)))):.6f}"))
        argument = np.float32(float(argument) + 0.01)
    largest = np.float32(-255)
    for score in x:
        largest = max(largest, np.float32(score))
    powers, total = [], np.float32(0)
    for score in x:
        distance = largest - np.float32(score)
        place = 1000 - int(np.float32(100) * distance) if distance < 10 else None
        power = np.float32(0) if place is None else np.float32(1) if place == 1000 else table[place]
        powers.append(power)
        total += power
    return [power * (np.float32(1) / total) for power in powers]


def unit_length(x: Sequence[int], gamma: Sequence[float], read: int, written: int) -> list[int]:
    """Codes of one pixel's channels divided by their norm, from and to DynamicFixed codes with these fraction lengths."""
    total = sum(code * code >> read for code in x)
    inverse = np.float32(1) / np.sqrt(np.float32(total) / np.float32(1 << read)) if total else np.float32(1e-10)
    scaled = int(inverse * np.float32(1 << 30))
    return [held(code * held(int(g * 2**written), 8) * scaled >> 30 + read, 8) for code, g in zip(x, gamma)]


def unit_length_by_thresholds(x: Sequence[int], gamma: Sequence[np.float32], step: float, new: float) -> list[int]:
    """The same from and to Xilinx codes of 8 bits with these steps."""
    values, total = [np.float32(code) * np.float32(step) for code in x], np.float32(0)
    for value in values:
        total += value * value
    inverse = np.float32(1) / np.sqrt(total) if total else np.float32(1e-10)
    return [max(-127, min(127, int(value * g * inverse / np.float32(new)))) for value, g in zip(values, gamma)]


def best_class(x: Array, weights: Array, bias: Sequence[int], stride: int) -> tuple[Array, Counter[str]]:
    """The best class of each pixel of one image (C, H, W), from the four pixels that reach it, and how often none had one.

    Two buffers of a row take turns: their scores begin anew, their classes do not.
    """
    classes, height, width = x.shape
    kernel = len(weights)
    rows, columns = stride * (height - 1) + kernel, stride * (width - 1) + kernel
    buffers, events = [[0] * columns, [0] * columns], Counter[str]()
    result = np.zeros((rows, columns), np.int64)
    for r in range(rows):
        buffer = buffers[r % 2]
        for column in range(columns):
            best, scored = -10000, False
            for c in range(classes):
                score = bias[c]
                for i, j in ((r // stride - di, column // stride - dj) for di in (0, 1) for dj in (0, 1)):
                    ki, kj = r - i * stride, column - j * stride
                    if 0 <= i < height and 0 <= j < width and ki < kernel and kj < kernel:
                        score += int(x[c, i, j]) * int(weights[ki, kj])
                if score > best:
                    best, buffer[column], scored = score, c, True
            events["none"] += not scored
        result[r] = buffer
    return result, events
