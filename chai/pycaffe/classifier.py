"""Classifier: class probabilities of images, averaged over crops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from ..blob import Array
from ..util.lazy_numpy import np
from . import io
from .arguments import pictures, size_of
from .net import TEST, Net


def transformer(
    net: Net, mean: Array | None, input_scale: float | None, raw_scale: float | None, swap: Sequence[int] | None
) -> io.Transformer:
    """Return a Transformer from images (H, W, K) to the first input of a net."""
    name = net.inputs[0]
    how = io.Transformer({name: net.blobs[name].shape})
    how.set_transpose(name, (2, 0, 1))
    if mean is not None:
        how.set_mean(name, mean)
    if input_scale is not None:
        how.set_input_scale(name, input_scale)
    if raw_scale is not None:
        how.set_raw_scale(name, raw_scale)
    if swap is not None:
        how.set_channel_swap(name, swap)
    return how


class Classifier(Net):
    """A Net with its preprocessing.

    ``image_dims``   (height, width) that images are resized to before crops are cut; None: the net's input size
    ``mean``, ``input_scale``, ``raw_scale``, ``channel_swap``   as io.Transformer's
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path | None,
        image_dims: Sequence[int] | None = None,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model_file, TEST, weights=pretrained_file, **options)
        self.transformer = transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = self.crop_dims if image_dims is None else size_of("image_dims", image_dims)

    def predict(self, inputs: Sequence[Array], oversample: bool = True) -> Array:
        """Return class probabilities (N, classes) of N images (H, W, K).

        They are the mean over ten crops, or the centre crop's alone.
        """
        images = [io.resize_image(im, self.image_dims) for im in pictures("predict", inputs)]
        if not images:
            shape = self.blobs[self.outputs[0]].shape[1:]
            return np.zeros((0, prod(shape)) if oversample else (0, *shape), np.float32)
        crops = io.oversample(images, self.crop_dims)
        if not oversample:
            crops = crops[4::10]  # the centre of each
        name = self.inputs[0]
        items: dict[str, Any] = {name: np.array([self.transformer.preprocess(name, crop) for crop in crops])}
        predictions = self.forward_all(**items)[self.outputs[0]]
        return predictions.reshape(len(images), 10, -1).mean(1) if oversample else predictions
