"""Measure a fixed-point network's agreement with float, and its accuracy, over any number of images.

outputs    the kind of each output: scores, boxes or a map
kinds      the measure of each kind: score, boxes, maps
truth      ground truth of images, from files
workers    dispatch of batches to processes of this machine (processes) or of a dask cluster (cluster)
"""

from __future__ import annotations

from .kinds import evaluate as evaluate
from .measure import wilson as wilson
from .outputs import Output as Output, output as output
from .score import Evaluation as Evaluation
