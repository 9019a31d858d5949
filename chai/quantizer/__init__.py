"""The quantiser: choose 8- or 6-bit formats and weights that preserve the outputs of a network.

>>> from chai.quantizer import quantize
>>> quantize("net.prototxt", "net.caffemodel", batches, "net_int8.prototxt")

A float pass gathers each blob's value statistics (observe, ranges). A recipe derives formats and weights from them
(recipe, weights, equalise). Each recipe is run in the overlay's own arithmetic (build, walk) and judged by the error
of the network's outputs on the calibration images (search). Mixed widths are chosen by the error of each layer alone
(alone). For CHaiDNN weights and formats are those that its registers hold (registers). The best is written into the user's
files (writeback).
"""

from __future__ import annotations

from .recipe import EFFORTS as EFFORTS, PLAIN as PLAIN, Recipe as Recipe
from .search import Result as Result, quantize as quantize
