"""DepthwiseConvolution: a Convolution with one group per channel."""

from __future__ import annotations

from .convolution import Convolution


class DepthwiseConvolution(Convolution):
    """Type of forks that have a faster kernel for it; parameters and results are Convolution's."""

    fork = "yonghenglh6/DepthwiseConvolution"
