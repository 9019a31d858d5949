"""How often a network in fixed point says what float says, and what is true, over any number of images.

score     what one image says about a device, and what all say together
work      what a worker does with a batch: the same network on the same files, wherever it is
crew      who runs which batch, again after a loss, and each image once
processes workers on this machine;  cluster  workers of a dask scheduler
"""

from __future__ import annotations

from .score import Evaluation as Evaluation, evaluate as evaluate, scores as scores, wilson as wilson
