"""The array engine: convolutions, depthwise ones and affine Tasks.

A descriptor becomes a Plan (``plan``). Three parts read it, each as far ahead of the next as memory allows: ``loader``
(input rows into a ring), ``constants`` (weights into a ring, tables), and ``jobs``, whose sequence of tiles and blocks
``passes`` turns into pixels. The pixels run through ``multipliers`` and ``sums``, from which ``drain`` writes codes.
"""
