"""Layers in float32 on the host, and the memory of their blobs."""
