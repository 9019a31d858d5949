"""Depthwise: the kernels of a Conv, which it is but for its engine."""

from .conv import form, kernel

__all__ = ["form", "kernel"]
