"""Detectors: what a network's outputs say of boxes, and the layer that makes boxes of them."""
