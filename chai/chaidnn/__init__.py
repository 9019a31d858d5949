"""CHaiDNN's calls: xiInit, xiExec and the rest, and its layer lists (xiEval)."""

from .calls import (
    getPerfInfo,
    inputNormalization,
    io_layer_info,
    kernel_type_e,
    outputWrite,
    xiEval,
    xiExec,
    xiInit,
    xiInputRead,
    xiRelease,
    xiUnpackOutput,
)

__all__ = [
    "getPerfInfo",
    "inputNormalization",
    "io_layer_info",
    "kernel_type_e",
    "outputWrite",
    "xiEval",
    "xiExec",
    "xiInit",
    "xiInputRead",
    "xiRelease",
    "xiUnpackOutput",
]
