"""A network as layers and blobs: Graph, Layer, their parameters and fillers."""

from .layer import Layer, check_shape
from .network import Graph, last_readers

__all__ = ["Graph", "Layer", "check_shape", "last_readers"]
