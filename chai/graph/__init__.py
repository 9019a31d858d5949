"""A network as layers and blobs: Graph, Layer, their parameters and fillers."""

from .layer import OUTPUT_KINDS, Arithmetic, Layer, OutputKind
from .network import Composed, Graph

__all__ = ["OUTPUT_KINDS", "Arithmetic", "Composed", "Graph", "Layer", "OutputKind"]
