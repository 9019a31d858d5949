"""The preprocessing of pictures, from an artifact's header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..images.preprocess import LETTERBOX, Preprocess
from .container import Artifact


def preprocess_of(file: Artifact, stored: Mapping[str, Any]) -> Preprocess:
    """Return the preprocessing that a card in the header has. Raises ParseError, UsageError."""
    preprocess = dict(stored)
    mean, scale = preprocess.pop("mean", []), preprocess.pop("scale", 1.0)
    borders = preprocess.pop("resize", None) if preprocess.get("resize") == LETTERBOX else None
    settings = file.restore(Preprocess, preprocess, "preprocess")
    settings = replace(settings, resize=borders or settings.resize)
    value = file.array(mean) if isinstance(mean, dict) else _numbers(file, "mean", mean)
    settings.with_options(resize=settings.resize, crop=settings.crop, channels=settings.channels)  # checks their values
    return replace(settings, mean=value, scale=_numbers(file, "scale", scale))


def _numbers(file: Artifact, name: str, value: Any) -> float | tuple[float, ...]:
    """Return one number, or one per channel."""
    if isinstance(value, list):
        return tuple(file.restore(float, v, name) for v in value)
    return file.restore(float, value, name)
