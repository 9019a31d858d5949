"""Layers of training nets that chai leaves out: writers, and losses and measures of forks."""

from __future__ import annotations

from ..graph import Layer


class TrainingLayer(Layer):
    """Dropped with its tops."""

    training_only = True
    skipped = True
    bottoms_allowed = (1, None)
    tops_allowed = (0, None)
