"""Detector: classify windows of images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..blob import Array
from ..errors import UsageError
from ..util.lazy_numpy import np
from . import io
from .arguments import edges_of, windows_of
from .classifier import transformer
from .net import TEST, Net


class Detector(Net):
    """A Net with its preprocessing, for windows from an external proposal method.

    ``mean``, ``input_scale``, ``raw_scale``, ``channel_swap``   as io.Transformer's
    ``context_pad``   pixels of the net's input around a window that show its surroundings, as in R-CNN; the mean where
                      the image ends
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path | None,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model_file, TEST, weights=pretrained_file, **options)
        self.transformer = transformer(self, mean, input_scale, raw_scale, channel_swap)
        height, width = self.blobs[self.inputs[0]].shape[2:]
        if context_pad and not (
            isinstance(context_pad, (int, float, np.number)) and 0 < 2 * context_pad < min(height, width)
        ):
            raise UsageError(f"context_pad {context_pad}: expected less than half of the net's input {height}x{width}")
        self.context_pad = context_pad or 0

    def detect_windows(
        self, images_windows: Iterable[tuple[str | Path, Iterable[Sequence[float]]]]
    ) -> list[dict[str, Any]]:
        """Classify windows (ymin, xmin, ymax, xmax) of image files, each resized to the net's input.

        Returns a dict per window, in order: ``window``, ``prediction`` (the net's first output) and ``filename``.
        """
        name = self.inputs[0]
        rows, items = [], []
        for filename, windows in windows_of(images_windows):
            image = io.load_image(filename)
            for window in windows:
                top, left, bottom, right = edges_of(window)
                crop = image[top:bottom, left:right]
                if min(top, left) < 0 or crop.shape[:2] != (bottom - top, right - left) or not crop.size:
                    raise UsageError(
                        f"window {tuple(window)} is no part of {filename} ({image.shape[0]}x{image.shape[1]})"
                    )
                if self.context_pad:
                    crop = self._with_context(image, (top, left, bottom, right))
                rows.append({"window": window, "filename": filename})
                items.append(self.transformer.preprocess(name, crop))
        if not rows:
            return []
        inputs: dict[str, Any] = {name: np.array(items)}
        predictions = self.forward_all(**inputs)[self.outputs[0]]
        return [{**row, "prediction": prediction} for row, prediction in zip(rows, predictions)]

    def _with_context(self, image: Array, window: tuple[int, int, int, int]) -> Array:
        """Return a window and its surroundings at the size of the net's input (H, W, K).

        The formula is that of Caffe's Detector.crop: a window ends with the pixel ``bottom``, ``right``.
        """
        name = self.inputs[0]
        shape = self.blobs[name].shape
        crop = self.transformer.deprocess(name, np.zeros(shape[1:], np.float32))  # what preprocess turns into 0
        sizes = np.array(shape[2:])
        scale = shape[3] / (shape[3] - 2 * self.context_pad)
        start, end = np.array(window[:2], np.float64), np.array(window[2:], np.float64)
        half = (end - start + 1) / 2
        start, end = np.round(start + half - scale * half), np.round(start + half + scale * half)
        factor = sizes / (end - start + 1)  # of pixels of the input per pixel of the image
        first = np.round(np.maximum(-start, 0) * factor).astype(int)
        inside = np.clip(start, 0, image.shape[:2]), np.clip(end, 0, image.shape[:2])
        count = np.minimum(np.round((inside[1] - inside[0] + 1) * factor).astype(int), sizes - first)
        (top, left), (bottom, right) = (edge.astype(int) for edge in inside)
        part = io.resize_image(image[top:bottom, left:right], tuple(count))
        crop[first[0] : first[0] + count[0], first[1] : first[1] + count[1]] = part
        return crop
