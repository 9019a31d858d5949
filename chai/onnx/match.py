"""Match groups of nodes that one layer computes, and put one node in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isclose, pi, prod, sqrt

from .read import Model, NodeRecord
from .refusal import Refused

SMALL = 8  # numbers of a constant that a match looks at
Match = Callable[["Links", NodeRecord], "NodeRecord | None"]


class Links:
    """The nodes of a file by what they write and read."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.writers = {name: node for node in model.nodes for name in node.outputs}
        self.readers: dict[str, list[NodeRecord]] = {}
        for node in filter(_whole, model.nodes):
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {value.name for value in model.outputs}
        self.gone: set[int] = set()  # nodes that others have taken in

    def only_reader(self, name: str) -> NodeRecord | None:
        """Return the one node that reads a value; None if there are others or it is an output."""
        nodes = self.readers.get(name, [])
        return nodes[0] if len(nodes) == 1 and name not in self.outputs else None

    def other(self, node: NodeRecord, name: str) -> str | None:
        """Return the second input of a node of two that reads ``name`` once; None if it is not that."""
        if node.domain or len(node.inputs) != 2 or node.inputs.count(name) != 1:
            return None
        return node.inputs[1 - node.inputs.index(name)]

    def after(self, name: str, operator: str) -> tuple[NodeRecord, str] | None:
        """Return the only reader of a value, if it is a node of this operator, and what else that reads."""
        node = self.only_reader(name)
        other = self.other(node, name) if node is not None and node.operator == operator else None
        return (node, other) if node is not None and other is not None else None

    def numbers(self, name: str) -> list[float] | None:
        """Return the numbers of a small constant: a tensor of the file, or the value of a Constant."""
        constant = self.model.tensors.get(name)
        writer = self.writers.get(name)
        if constant is None and writer is not None and writer.operator == "Constant" and not writer.domain:
            if "value" not in writer.attributes:
                return None
            constant = writer.attributes.tensor("value")
        if constant is None or prod(constant.shape) > SMALL:
            return None
        return [float(number) for number in constant.array().reshape(-1)]

    def is_number(self, name: str, number: float) -> bool:
        """Return whether a value is a constant of this one number."""
        values = self.numbers(name)
        return values is not None and len(values) == 1 and isclose(values[0], number, rel_tol=1e-4)

    def take(self, *nodes: NodeRecord) -> None:
        """Let nodes be computed by another."""
        self.gone.update(node.index for node in nodes)


def _whole(node: NodeRecord) -> bool:
    """Return whether a node has inputs and outputs, as all in a match but Constant."""
    return bool(node.inputs and node.outputs)


def matched(model: Model) -> Iterator[NodeRecord]:
    """Yield the nodes of a file in order, with one node for each group that was matched."""
    links = Links(model)
    replaced: dict[int, NodeRecord] = {}
    for node in model.nodes:
        if (
            not node.domain
            and _whole(node)
            and (match := _MATCHES.get(node.operator)) is not None
            and node.index not in links.gone
        ):
            try:
                group = match(links, node)
            except Refused:  # which the node's operator says with its reason
                group = None
            if group is not None:
                replaced[group.index] = group
    for node in model.nodes:
        if node.index in replaced:
            yield replaced[node.index]
        elif node.index not in links.gone:
            yield node


def _gated(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match x * Sigmoid(x), or x * HardSigmoid(x), as Swish or HardSwish."""
    product = links.after(node.outputs[0], "Mul")
    if product is None or product[1] != node.inputs[0]:
        return None
    if node.operator == "Sigmoid":
        return _one(links, product[0], "Swish", node.inputs[0], [node])
    alpha, beta = node.attributes.number("alpha", 0.2), node.attributes.number("beta", 0.5)
    if abs(alpha - 1 / 6) > 1e-6 or beta != 0.5:
        return None
    return _one(links, product[0], "HardSwish", node.inputs[0], [node])


def _one(
    links: Links, last: NodeRecord, operator: str, x: str, others: Sequence[NodeRecord], **integers: int
) -> NodeRecord:
    """Return one node for a group that ends with ``last``."""
    links.take(*others)
    return replace(last, operator=operator, inputs=(x,), attributes=last.attributes.only(**integers))


def _halved(links: Links, node: NodeRecord, x: str, before: Sequence[NodeRecord], **integers: int) -> NodeRecord | None:
    """Match (node + 1) * x * 0.5, its factors in any order, as Gelu."""
    plus = links.after(node.outputs[0], "Add")
    if plus is None or not links.is_number(plus[1], 1):
        return None
    chain, left = [plus[0]], {"x", "half"}
    while left:
        product = links.after(chain[-1].outputs[0], "Mul")
        if product is None:
            return None
        factor = (
            "x" if product[1] == x else "half" if links.is_number(product[1], 0.5) else _half_of(links, product[1], x)
        )
        if factor == "both" and left == {"x", "half"}:
            chain.append(links.writers[product[1]])
            left.clear()
        elif factor in left:
            left.remove(factor)
        else:
            return None
        chain.append(product[0])
    return _one(links, chain[-1], "Gelu", x, [*before, node, *chain[:-1]], **integers)


def _half_of(links: Links, name: str, x: str) -> str:
    """Return "both" if a value is x * 0.5, which nothing else reads."""
    node = links.writers.get(name)
    if node is None or node.operator != "Mul" or links.only_reader(name) is None:
        return ""
    other = links.other(node, x)
    return "both" if other is not None and links.is_number(other, 0.5) else ""


def _error_function(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match 0.5 * x * (1 + Erf(x / sqrt(2))) as Gelu."""
    scaled = links.writers.get(node.inputs[0])
    if scaled is None or scaled.domain or links.only_reader(node.inputs[0]) is not node or len(scaled.inputs) != 2:
        return None
    for x, factor in (scaled.inputs, scaled.inputs[::-1]):
        root = sqrt(2) if scaled.operator == "Div" else sqrt(0.5)
        if scaled.operator in ("Div", "Mul") and links.is_number(factor, root):
            return _halved(links, node, x, [scaled])
        if scaled.operator == "Div":
            return None
    return None


def _tanh(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match 0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) as Gelu."""
    outer = links.writers.get(node.inputs[0])
    inner = _product(links, outer, sqrt(2 / pi))
    total = links.writers.get(inner) if inner is not None else None
    if outer is None or total is None or total.operator != "Add" or len(total.inputs) != 2:
        return None
    for x, other in (total.inputs, total.inputs[::-1]):
        product = links.writers.get(other)
        cube = _product(links, product, 0.044715)
        power = links.writers.get(cube) if cube is not None else None
        if product is None or power is None or power.operator != "Pow" or power.inputs[:1] != (x,):
            continue
        parts = [power, product, total, outer]
        if (
            len(power.inputs) == 2
            and links.is_number(power.inputs[1], 3)
            and all(links.only_reader(part.outputs[0]) for part in parts)
        ):
            return _halved(links, node, x, parts, tanh=1)
    return None


def _product(links: Links, node: NodeRecord | None, number: float) -> str | None:
    """Return what a Mul multiplies by a number; None if it is no such node."""
    if node is None or node.operator != "Mul" or node.domain or len(node.inputs) != 2:
        return None
    for x, factor in (node.inputs, node.inputs[::-1]):
        if links.is_number(factor, number):
            return x
    return None


def _shifted(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match x * Clip(x + 3, 0, 6) / 6, its factors in any order, as HardSwish."""
    plus = links.writers.get(node.inputs[0])
    bounds = [node.attributes.number("min"), node.attributes.number("max")]
    for i, name in enumerate(node.inputs[1:3]):
        values = links.numbers(name)
        bounds[i] = values[0] if values else None
    if (
        bounds != [0, 6]
        or plus is None
        or plus.operator != "Add"
        or len(plus.inputs) != 2
        or links.only_reader(node.inputs[0]) is not node
    ):
        return None
    x = next((a for a, b in (plus.inputs, plus.inputs[::-1]) if links.is_number(b, 3)), None)
    chain, left = [node], {"x", "sixth"}
    while left and x is not None:
        product = links.after(chain[-1].outputs[0], "Mul")
        quotient = links.after(chain[-1].outputs[0], "Div")
        if product is not None and product[1] == x and "x" in left:
            left.remove("x")
            chain.append(product[0])
        elif product is not None and links.is_number(product[1], 1 / 6) and "sixth" in left:
            left.remove("sixth")
            chain.append(product[0])
        elif quotient is not None and links.is_number(quotient[1], 6) and "sixth" in left:
            left.remove("sixth")
            chain.append(quotient[0])
        else:
            return None
    return None if x is None else _one(links, chain[-1], "HardSwish", x, [plus, *chain[:-1]])


# places of the pixels of a square of four: row and column of each block of channels
_FOCUS = [(0, 0), (1, 0), (0, 1), (1, 1)]


def _focus(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match Concat of x[..., ::2, ::2], [..., 1::2, ::2], [..., ::2, 1::2] and [..., 1::2, 1::2] as Focus."""
    if len(node.inputs) != 4 or node.attributes.integer("axis", 1) != 1:
        return None
    taken: list[NodeRecord] = []
    source, negative = "", False
    for name, place in zip(node.inputs, _FOCUS):
        starts: dict[int, int] = {}
        chain: list[NodeRecord] = []
        while (cut := links.writers.get(name)) is not None and cut.operator == "Slice" and len(starts) < 2:
            if links.only_reader(name) is None:
                return None
            each = _every_second(links, cut)
            if each is None:
                return None
            negative = negative or min(each) < 0
            each = {axis % 4: start for axis, start in each.items()}
            if not starts.keys().isdisjoint(each):
                return None
            starts.update(each)
            chain.append(cut)
            name = cut.inputs[0]
        if starts != {2: place[0], 3: place[1]} or source not in ("", name):
            return None
        source = name
        taken += chain
    return _one(links, node, "Focus", source, taken, negative=int(negative))


def _every_second(links: Links, node: NodeRecord) -> dict[int, int] | None:
    """Return the first pixel along each axis of which a Slice takes every second to the end; None if it does other things."""
    if len(node.inputs) != 5:
        return None
    starts, ends, axes, steps = (links.numbers(name) for name in node.inputs[1:])
    if starts is None or ends is None or axes is None or steps is None:
        return None
    if any(step != 2 for step in steps) or min(ends) < 1 << 30:
        return None
    return {int(axis): int(start) for axis, start in zip(axes, starts)} or None


_MATCHES: dict[str, Match] = {
    "Sigmoid": _gated,
    "HardSigmoid": _gated,
    "Erf": _error_function,
    "Tanh": _tanh,
    "Clip": _shifted,
    "Concat": _focus,
}
