"""Compare a network in fixed point with float, and with what is true, over any number of images.

outputs    what each output is: scores, boxes or a map;  kinds  how each is measured: score, boxes, maps
truth      what is true of an image, from files
work       what a worker does with a batch: the same network on the same files, wherever it is
crew       dispatch of the batches: each image counts once, lost batches are tried again
processes  workers on this machine;  cluster  workers of a dask scheduler
"""

from __future__ import annotations

from .kinds import evaluate as evaluate
from .measure import wilson as wilson
from .outputs import Output as Output, output as output
from .score import Evaluation as Evaluation
