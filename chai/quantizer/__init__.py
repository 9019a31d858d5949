"""The quantiser: 8- and 6-bit formats and weights that keep what a network computes.

>>> from chai.quantizer import quantize
>>> quantize("net.prototxt", "net.caffemodel", batches, "net_int8.prototxt")

A float pass gathers what values every blob takes (observe, ranges); recipes say how formats and weights follow from
them (recipe, weights, bias, equalise); each is built on the overlay's own arithmetic (build, walk) and judged by what the
network's outputs lose on the calibration images (search); the best is written into the user's files (writeback).
"""

from __future__ import annotations

from .recipe import EFFORTS as EFFORTS, PLAIN as PLAIN, Recipe as Recipe
from .search import Result as Result, quantize as quantize
