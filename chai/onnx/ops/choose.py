"""Indices and truth values: whole numbers, which layers have as float32."""

from __future__ import annotations

from typing import Any

from ...util.lazy_numpy import np
from ..node import OnnxNode
from ..refusal import Refused
from . import operator

MOST = 1 << 24  # whole numbers that float32 holds


@operator("ArgMax", "ArgMin")
def arg_max(node: OnnxNode) -> None:
    shape = node.shape()
    axis = node.axis(node.attributes.integer("axis", 0), len(shape))
    x = node.input() if node.operator == "ArgMax" else node.part("Power", node.input(), scale=-1.0)
    first = not node.attributes.integer("select_last_index", 0)
    check_index(shape[axis])
    params: dict[str, Any] = {"axis": axis, "chai_first": first}
    if node.attributes.integer("keepdims", 1):
        node.result("ArgMax", x, **params)
    else:
        node.reshaped(node.part("ArgMax", x, **params), [*shape[:axis], *shape[axis + 1 :]])
    node.whole_numbers(0)


@operator("TopK")
def top_k(node: OnnxNode) -> None:
    shape = node.shape()
    axis = node.axis(node.attributes.integer("axis", -1), len(shape))
    count = node.attributes.integer("k") if node.opset < 10 else next(iter(node.whole(1, "k")), None)
    if count is None or not 1 <= count <= shape[axis]:
        raise Refused(f"the {count} largest of {shape[axis]}")
    check_index(shape[axis])
    largest = node.attributes.integer("largest", 1)
    x = node.input() if largest else node.part("Power", node.input(), scale=-1.0)
    params: dict[str, Any] = {"axis": axis, "top_k": count, "chai_first": True}
    values, indices = (*node.record.outputs, "", "")[:2]
    if values:
        top = node.part("ArgMax", x, out_max_val=True, **params)
        node.same(top if largest else node.part("Power", top, scale=-1.0))
    if indices:
        node.same(node.part("ArgMax", x, **params), 1)
        node.whole_numbers(1)


def check_index(size: int) -> None:
    """Raise Refused if indices of an axis of this size are more than layers can have."""
    if size > MOST:
        raise Refused(f"an index of an axis of {size:,} is no float32")


_RELATIONS = {"Greater": "GREATER", "Less": "LESS", "Equal": "EQUAL"}
_RELATIONS |= {f"{name}OrEqual": f"{_RELATIONS[name]}_EQUAL" for name in ("Greater", "Less")}


@operator(*_RELATIONS)
def compare(node: OnnxNode) -> None:
    node.result("Compare", node.input(0), node.input(1), operation=_RELATIONS[node.operator])
    node.whole_numbers(0)


@operator("And", "Or", "Not")
def combine(node: OnnxNode) -> None:
    x = node.input()
    if node.operator == "Not":
        node.result("Power", x, scale=-1.0, shift=1.0)
    elif node.operator == "And":
        node.result("Mul", x, node.input(1))
    else:  # at least one of both
        node.result("Clip", node.part("Add", x, node.input(1)), min=0.0, max=1.0)
    node.whole_numbers(0)


@operator("Where")
def where(node: OnnxNode) -> None:
    """Choose numbers of two blobs, by truth values that are 0 and 1 here."""
    if node.is_constant(0):
        condition = node.constant_blob(node.constant(0, "condition").astype(np.float32))
    else:
        condition = node.input(0)
    node.result("Where", condition, node.input(1), node.input(2))


@operator("IsNaN", "IsInf")
def special(node: OnnxNode) -> None:
    x = node.input()
    if node.operator == "IsNaN":
        node.result("Power", node.part("Compare", x, x, operation="EQUAL"), scale=-1.0, shift=1.0)
    else:
        positive, negative = (node.attributes.integer(f"detect_{sign}", 1) for sign in ("positive", "negative"))
        if not (positive or negative):
            raise Refused("neither sign is looked for")
        if not positive:
            x = node.part("Power", x, scale=-1.0)
        elif negative:
            x = node.part("AbsVal", x)
        node.result("Compare", x, node.constant_blob(np.array(np.inf, np.float32)), operation="EQUAL")
    node.whole_numbers(0)
