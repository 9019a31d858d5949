"""Affine: the kernels of a Conv, which it is."""

from .conv import form, kernel

__all__ = ["form", "kernel"]
