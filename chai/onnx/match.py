"""Match groups of nodes that one layer computes, and put one node in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
            constant = writer.attributes.tensor("value")
        if constant is None or prod(constant.shape) > SMALL:
            return None
        return [float(number) for number in constant.array().reshape(-1)]

    def is_number(self, name: str, number: float) -> bool:
        """Return whether a value is a constant of this one number."""
        values = self.numbers(name)
        return values is not None and len(values) == 1 and isclose(values[0], number, rel_tol=1e-4)

    def writer(self, name: str | None, operator: str) -> NodeRecord | None:
        """Return the node of this operator and two inputs that writes a value; None if no such node does."""
        node = self.writers.get(name) if name else None
        fits = node is not None and node.operator == operator and not node.domain and len(node.inputs) == 2
        return node if fits else None

    def with_number(self, name: str | None, operator: str, number: float) -> str | None:
        """Return of what and this number a node of two inputs computes a value; None if no such node does."""
        node = self.writer(name, operator)
        orders = () if node is None else (node.inputs, node.inputs[::-1])
        for x, other in orders[:1] if operator in ("Div", "Pow") else orders:
            if self.is_number(other, number):
                return x
        return None


def _whole(node: NodeRecord) -> bool:
    """Return whether a node has inputs and outputs, as all in a match but Constant, and no input too many."""
    return bool(node.inputs and node.outputs) and not node.further


def matched(model: Model) -> Iterator[NodeRecord]:
    """Yield the nodes of a file in order, with one node for each group that was matched."""
    links = Links(model)
    replaced: dict[int, NodeRecord] = {}
    for node in model.nodes:
        match = _MATCHES.get(node.operator)
        if match is None or node.domain or not _whole(node) or node.index in links.gone:
            continue
        with suppress(Refused):  # which the node's operator says with its reason
            if (group := match(links, node)) is not None:
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
    links.gone.update(other.index for other in others)
    return replace(last, operator=operator, inputs=(x,), attributes=last.attributes.only(**integers))


def _product(links: Links, first: NodeRecord, x: str, number: float) -> list[NodeRecord] | None:
    """Return ``first`` and the nodes that multiply it by x and by a number, in any order; None if others read it."""
    chain, left = [first], {"x", "number"}
    while left:
        value = chain[-1].outputs[0]
        node, other = links.after(value, "Mul") or links.after(value, "Div") or (None, "")
        if node is None:
            return None
        factors: set[str] = set()
        if node.operator == "Div":
            if node.inputs[0] == value and links.is_number(other, 1 / number):
                factors = {"number"}
        elif other == x:
            factors = {"x"}
        elif links.is_number(other, number):
            factors = {"number"}
        elif links.only_reader(other) and links.with_number(other, "Mul", number) == x:
            factors = {"x", "number"}
            chain.append(links.writers[other])
        if not factors or not factors <= left:
            return None
        left -= factors
        chain.append(node)
    return chain


def _halved(links: Links, node: NodeRecord, x: str, before: Sequence[NodeRecord], **integers: int) -> NodeRecord | None:
    """Match (node + 1) * x * 0.5, its factors in any order, as Gelu."""
    plus = links.after(node.outputs[0], "Add")
    chain = _product(links, plus[0], x, 0.5) if plus is not None and links.is_number(plus[1], 1) else None
    return None if chain is None else _one(links, chain[-1], "Gelu", x, [*before, node, *chain[:-1]], **integers)


def _error_function(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match 0.5 * x * (1 + Erf(x / sqrt(2))) as Gelu."""
    scaled = node.inputs[0]
    x = links.with_number(scaled, "Div", sqrt(2)) or links.with_number(scaled, "Mul", sqrt(0.5))
    return _halved(links, node, x, [links.writers[scaled]]) if x and links.only_reader(scaled) is node else None


def _tanh(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match 0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) as Gelu."""
    inner = links.with_number(node.inputs[0], "Mul", sqrt(2 / pi))
    total = links.writer(inner, "Add")
    if inner is None or total is None:
        return None
    for x, product in (total.inputs, total.inputs[::-1]):
        cube = links.with_number(product, "Mul", 0.044715)
        if cube is not None and links.with_number(cube, "Pow", 3) == x:
            values = (cube, product, inner, node.inputs[0])
            if all(map(links.only_reader, values)):
                return _halved(links, node, x, [links.writers[value] for value in values], tanh=1)
    return None


def _shifted(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match x * Clip(x + 3, 0, 6) / 6, its factors in any order, as HardSwish."""
    plus = node.inputs[0]
    bounds = [node.attributes.number("min"), node.attributes.number("max")]
    for i, name in enumerate(node.inputs[1:3]):
        values = links.numbers(name)
        bounds[i] = values[0] if values else None
    x = links.with_number(plus, "Add", 3)
    if bounds != [0, 6] or x is None or links.only_reader(plus) is not node:
        return None
    chain = _product(links, node, x, 1 / 6)
    return None if chain is None else _one(links, chain[-1], "HardSwish", x, [links.writers[plus], *chain[:-1]])


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


_MATCHES: dict[str, Match] = {"Sigmoid": _gated, "HardSigmoid": _gated, "Clip": _shifted, "Concat": _focus}
_MATCHES |= {"Erf": _error_function, "Tanh": _tanh}
