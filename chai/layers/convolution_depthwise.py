"""ConvolutionDepthwise: a Convolution that multiplies each channel with weights of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..blob import Shape
from .convolution import Convolution


class ConvolutionDepthwise(Convolution):
    """Has as many outputs as channels, and as many groups, whatever ``group`` is; other parameters are Convolution's.

    The fork takes the channels for ``num_output`` without a word; OpenCV refuses another number, as here.
    """

    fork = "farmingyard/caffe-mobilenet"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params = replace(self.params, group=max(self.params.num_output, 1))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        tops = super().shapes(*bottoms)
        if bottoms[0][1] != self.params.num_output:
            raise self.wrong(
                f"num_output {self.params.num_output} for {bottoms[0][1]} channels: both are the same here"
            )
        return tops
