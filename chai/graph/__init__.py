"""A network as layers and blobs: Graph, Layer, their parameters and fillers."""

from .layer import OUTPUT_KINDS, Arithmetic, Layer, OutputKind, check_shape, shape_problem
from .network import Composed, Graph, last_readers

__all__ = [
    "OUTPUT_KINDS",
    "Arithmetic",
    "Composed",
    "Graph",
    "Layer",
    "OutputKind",
    "check_shape",
    "last_readers",
    "shape_problem",
]
