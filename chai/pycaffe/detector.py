"""Detector: classify windows of images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..util.lazy_numpy import np
from . import io
from .classifier import transformer
from .net import TEST, Net

if TYPE_CHECKING:
    from ..blob import Array


class Detector(Net):
    """A Net with its preprocessing, for windows from an external proposal method.

    ``mean``, ``input_scale``, ``raw_scale``, ``channel_swap``   as io.Transformer's
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
        if context_pad:
            raise UsageError(f"context_pad {context_pad}: chai takes windows as they are", hint="enlarge the windows")
        super().__init__(model_file, TEST, weights=pretrained_file, **options)
        self.transformer = transformer(self, mean, input_scale, raw_scale, channel_swap)

    def detect_windows(
        self, images_windows: Iterable[tuple[str | Path, Iterable[Sequence[float]]]]
    ) -> list[dict[str, Any]]:
        """Classify windows (ymin, xmin, ymax, xmax) of image files, each resized to the net's input.

        Returns a dict per window, in order: ``window``, ``prediction`` (the net's first output) and ``filename``.
        """
        name = self.inputs[0]
        rows, items = [], []
        for filename, windows in images_windows:
            image = io.load_image(filename)
            for window in windows:
                top, left, bottom, right = (int(edge) for edge in window)
                crop = image[top:bottom, left:right]
                if min(top, left) < 0 or crop.shape[:2] != (bottom - top, right - left) or not crop.size:
                    raise UsageError(
                        f"window {tuple(window)} is no part of {filename} ({image.shape[0]}x{image.shape[1]})"
                    )
                rows.append({"window": window, "filename": filename})
                items.append(self.transformer.preprocess(name, crop))
        if not rows:
            return []
        inputs: dict[str, Any] = {name: np.array(items)}
        found = self.forward_all(**inputs)[self.outputs[0]]
        return [{**row, "prediction": prediction} for row, prediction in zip(rows, found)]
