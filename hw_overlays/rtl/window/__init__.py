"""The window engine: pooling, eltwise and copy, one word of 8 channels a cycle.

``fetch`` reads blobs and tables, ``pool`` reduces windows, ``compute`` leads words and sums through the lanes of
``requantise``, ``store`` writes codes. Each takes the next Task while the parts after it still work on the last one.
"""
