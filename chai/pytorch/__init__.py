"""PyTorch modules as networks, by way of ONNX."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Any

from ..errors import UsageError
from ..net import Net


def from_torch(module: Any, example: Any, **options: Any) -> Net:
    """Return the network of a PyTorch module, which is exported as ONNX into memory.

    ``example`` is an input of the module, or a tuple of its inputs; its sizes are those of the network, with any batch.
    ``options`` are Net's. Raises what torch.onnx.export raises, and what Net raises for a file.
    """
    try:
        import torch
    except ImportError:
        raise UsageError("from_torch needs PyTorch", hint="pip install torch") from None

    file = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, which needs no further package
        torch.onnx.export(module, example if isinstance(example, tuple) else (example,), file, dynamo=False)
    return Net(file.getvalue(), **options)
