"""ONNX operators, in one file each or one for each family; the folder is the list, but for ``windows.py``, which some share.

How to add an operator: add a file to this folder, or a function to the file of its family, with

    @operator("LeakyRelu")
    def leaky_relu(node: OnnxNode) -> None:
        node.result("ReLU", node.input(), negative_slope=node.attributes.number("alpha", 0.01))

The function adds the layers that compute the node, for all opsets from 6 on (``node.opset``), and raises Refused with
the reason for what they cannot. The test is in ``tests/onnx/ops``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

from ...util.paths import modules
from ..node import OnnxNode

Operator = Callable[[OnnxNode], None]
_OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Declare that a function adds the layers of these operators of the standard domain."""

    def declare(function: Operator) -> Operator:
        _OPERATORS.update(dict.fromkeys(names, function))
        return function

    return declare


@lru_cache(maxsize=1)
def operators() -> dict[str, Operator]:
    """Return the function of each operator."""
    for stem in sorted(modules(__path__) - {"__init__"}):
        import_module(f".{stem}", __name__)
    return _OPERATORS
