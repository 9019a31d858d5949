"""Naive definitions of Caffe's layers, to compare fast ones with.

Explicit loops over indices in float64, written from BVLC Caffe 1.0 and from SSD's branch of it. Nothing here is shared
with the package under test.
"""
