"""Layers of training nets that have no meaning at TEST: losses, metrics and writers."""

from __future__ import annotations

from ..blob import Shape
from ..graph import Layer


class TrainingLayer(Layer):
    """Dropped in phase TEST with its tops; refused in phase TRAIN, since chai does not train."""

    training_only = True
    bottoms_allowed = (1, None)
    tops_allowed = (0, None)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        raise self.wrong("belongs to training, which chai does not do", hint="load the network in phase TEST")
