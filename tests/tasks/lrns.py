"""Random LRN Tasks: of layers in random formats, or with tables that no layer has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chai import overlay
from chai.fixed import Format, Requantization
from chai.tasks.lrn import FACTOR_BITS, SEGMENTS, LRNTask, lines
from chai.tasks.target import Target
from chai.tasks.unsupported import Unsupported
from tests.tasks.common import Array, clamps, codes

Z2 = overlay.load("pynq-z2")


class Parameters(NamedTuple):
    """A layer's local_size, alpha, beta and k, and the formats of its blobs."""

    local_size: int
    alpha: float
    beta: float
    k: float
    source: Format
    target: Format

    def values(self, x: Array) -> Array:
        """Caffe's LRN of input codes, in float64."""
        v = (x.astype(np.int64) - self.source.zero) * self.source.step
        half, squares = self.local_size // 2, np.zeros_like(v)
        for c in range(v.shape[1]):
            squares[:, c] = np.square(v[:, max(c - half, 0) : c + half + 1]).sum(1)
        squares[squares == 0] = 1  # among zeros, whose result is 0 whatever the factor
        return v * (self.k + self.alpha / self.local_size * squares) ** -self.beta

    def task(self, shape: tuple[int, ...]) -> LRNTask:
        """Raises Unsupported."""
        p = self
        target = Target(Z2, {"x": p.source, "y": p.target}, {"x": shape, "y": shape})
        table = lines(target, "x", "y", p.local_size, lambda sums: (p.k + p.alpha / p.local_size * sums) ** -p.beta)
        return LRNTask(("x",), "y", ("norm",), p.local_size, *table, p.source.zero)


def random_format(rng: np.random.Generator, largest: float) -> Format:
    bits, unsigned = int(rng.choice([8, 8, 6])), bool(rng.random() < 0.6)
    if rng.random() < 0.5:
        return Format("Xilinx", bits, float(np.float32(largest)), unsigned)
    return Format("DynamicFixed", bits, bits - (not unsigned) - int(np.ceil(np.log2(largest))), unsigned)


def random_parameters(rng: np.random.Generator, most: int = 9) -> Parameters:
    """Of any magnitude; the output's format covers what is reached, or saturates."""
    local_size = int(rng.integers(0, (most + 1) // 2)) * 2 + 1
    source = random_format(rng, 10 ** rng.uniform(-1, 3))
    k, beta = float(rng.choice([0, 0.01, 1, 1, 2])), float(rng.choice([0.5, 0.75, 0.75, 0.9, 1, 2]))
    weight = 10 ** rng.uniform(-4, 2)  # alpha * mean of squares for a window of large values, over k
    alpha = weight / (source.step * source.largest) ** 2
    probe = Parameters(local_size, alpha, beta, k, source, source)
    extreme = np.full((1, 2 * local_size + 1, 1, 1), source.range[1], np.int8)
    extreme[:, ::2] = source.zero
    reached = float(probe.values(extreme).max())
    return probe._replace(target=random_format(rng, reached * rng.choice([1, 1, 0.4, 3])))


def random_shape(rng: np.random.Generator) -> tuple[int, ...]:
    """Channels around whole planes, pixels around chunks of 64."""
    n, c = int(rng.integers(1, 4)), int(rng.choice([1, 2, 7, 8, 9, 16, 17, 24, 25, rng.integers(1, 70)]))
    return n, c, int(rng.integers(1, 14)), int(rng.choice([1, 2, 5, 9, 13, 16]))


def random_table(rng: np.random.Generator, most: int) -> LRNTask:
    """Any factors and slopes, also rising ones; shifts at which codes saturate, or are 0."""
    top = (1 << FACTOR_BITS) - 1
    bases = rng.integers(0, top + 1, SEGMENTS)
    bases[rng.integers(0, SEGMENTS, 40)] = top
    half = 1 << (FACTOR_BITS - 1)
    slopes = np.clip(rng.integers(-half, half, SEGMENTS), -bases, top - bases)
    slopes[rng.random(SEGMENTS) < 0.3] = 0
    zero = int(rng.choice([0, -128]))
    low, high = clamps(rng, zero)
    r = Requantization(np.array(1), int(rng.choice([0, 1, 17, 18, 19, 20, 40])), low, high, zero=zero)
    local_size = int(rng.integers(0, (most + 1) // 2)) * 2 + 1
    return LRNTask(("x",), "y", ("norm",), local_size, bases, slopes, r, int(rng.choice([0, -128])))


def random_case(rng: np.random.Generator, most: int = 9) -> tuple[LRNTask, Array, Parameters | None]:
    """A Task, input codes, and the layer it is of; None if of no layer."""
    shape = random_shape(rng)
    if rng.random() < 0.3:
        return random_table(rng, most), codes(rng, *shape), None
    while True:
        parameters = random_parameters(rng, most)
        try:
            task = parameters.task(shape)
        except Unsupported:
            continue
        low, high = parameters.source.range
        x = codes(rng, *shape, low=low, high=high)
        if rng.random() < 0.3:  # mostly zeros, as after a ReLU
            x = np.where(rng.random(shape) < 0.7, parameters.source.zero, x).astype(np.int8)
        return task, x, parameters
