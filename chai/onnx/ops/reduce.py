"""Reductions over some axes."""

from __future__ import annotations

from ..node import OnnxNode
from . import operator
from .windows import whole_map

_KINDS = {
    "ReduceMean": "MEAN", "ReduceSum": "SUM", "ReduceProd": "PROD", "ReduceMax": "MAX", "ReduceMin": "MIN", "ReduceL1": "ASUM",
    "ReduceL2": "SUMSQ", "ReduceSumSquare": "SUMSQ", "ReduceLogSum": "SUM", "ReduceLogSumExp": "",  # log_sum_exp
}  # fmt: skip
# layers that compute a reduction over no axes, of each number by itself; others change none
_ALONE = {"ReduceL1": "AbsVal", "ReduceL2": "AbsVal", "ReduceLogSum": "Log"}


@operator(*_KINDS)
def reduce(node: OnnxNode) -> None:
    shape, rank, name = node.shape(), len(node.shape()), node.operator
    axes = node.integers("axes", 1)
    keep = bool(node.attributes.integer("keepdims", 1))
    if not axes and node.attributes.integer("noop_with_empty_axes", 0):
        if name == "ReduceSumSquare":
            node.result("Power", node.input(), power=2.0)
        elif name in _ALONE:
            node.result(_ALONE[name], node.input())
        else:
            node.same(node.input())
        return
    along = sorted({node.axis(axis, rank) for axis in axes or range(rank)})
    if name == "ReduceMean" and rank == 4 and along == [2, 3]:
        whole_map(node, "AVE", keep)
        return
    rest = [axis for axis in range(rank) if axis not in along]
    top = [1 if axis in along else size for axis, size in enumerate(shape)] if keep else [shape[axis] for axis in rest]
    blob = node.input()
    if name == "ReduceLogSumExp":
        most, _, total = log_sum_exp(node, blob, along)
        node.reshaped(node.part("Eltwise", most, total, operation="SUM"), top)
        return
    if along != list(range(len(rest), rank)):
        blob = node.part("Permute", blob, order=(*rest, *along))
    blob = node.part("Reduction", blob, operation=_KINDS[name], axis=len(rest))
    if name == "ReduceL2":
        blob = node.part("Power", blob, power=0.5)
    elif name == "ReduceLogSum":
        blob = node.part("Log", blob)
    node.reshaped(blob, top)


def log_sum_exp(node: OnnxNode, blob: str, along: list[int]) -> tuple[str, str, str]:
    """Return the maximum over some axes, x minus it with these axes last, and the log of the sum of its exponentials.

    As the maximum is subtracted first, nothing overflows.
    """
    shape = node.shape_of(blob)
    rest = [axis for axis in range(len(shape)) if axis not in along]
    moved = node.part("Permute", blob, order=(*rest, *along))
    most = node.part("Reduction", moved, operation="MAX", axis=len(rest))
    ones = [*(shape[axis] for axis in rest), *(1 for _ in along)]
    shifted = node.part("Add", moved, node.part("Power", node.reshaped(most, ones, final=False), scale=-1.0))
    total = node.part("Log", node.part("Reduction", node.part("Exp", shifted), operation="SUM", axis=len(rest)))
    return most, shifted, total
