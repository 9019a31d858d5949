"""Match groups of nodes that one layer computes, and put one node in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .read import Model, NodeRecord

Match = Callable[["Links", NodeRecord], "NodeRecord | None"]


class Links:
    """The nodes of a file by what they write and read."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.writers = {name: node for node in model.nodes for name in node.outputs}
        self.readers: dict[str, list[NodeRecord]] = {}
        for node in model.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {value.name for value in model.outputs}
        self.gone: set[int] = set()  # nodes that others have taken in

    def only_reader(self, name: str) -> NodeRecord | None:
        """Return the one node that reads a value; None if there are others or it is an output."""
        nodes = self.readers.get(name, [])
        return nodes[0] if len(nodes) == 1 and name not in self.outputs else None

    def take(self, *nodes: NodeRecord) -> None:
        """Let nodes be computed by another."""
        self.gone.update(node.index for node in nodes)


def matched(model: Model) -> Iterator[NodeRecord]:
    """Yield the nodes of a file in order, with one node for each group that was matched."""
    links = Links(model)
    replaced: dict[int, NodeRecord] = {}
    for node in model.nodes:
        if not node.domain and (match := _MATCHES.get(node.operator)) is not None and node.index not in links.gone:
            group = match(links, node)
            if group is not None:
                replaced[group.index] = group
    for node in model.nodes:
        if node.index in replaced:
            yield replaced[node.index]
        elif node.index not in links.gone:
            yield node


def _gated(links: Links, node: NodeRecord) -> NodeRecord | None:
    """Match x * Sigmoid(x), or x * HardSigmoid(x), as Swish or HardSwish."""
    product = links.only_reader(node.outputs[0])
    if product is None or product.operator != "Mul" or product.domain or len(product.inputs) != 2:
        return None
    if sorted(product.inputs) != sorted((node.inputs[0], node.outputs[0])) or node.inputs[0] == node.outputs[0]:
        return None
    if node.operator == "Sigmoid":
        name = "Swish"
    else:
        alpha, beta = node.attributes.number("alpha", 0.2), node.attributes.number("beta", 0.5)
        if abs(alpha - 1 / 6) > 1e-6 or beta != 0.5:
            return None
        name = "HardSwish"
    links.take(node)
    return replace(product, operator=name, inputs=node.inputs[:1], attributes=product.attributes.none())


_MATCHES: dict[str, Match] = {"Sigmoid": _gated, "HardSigmoid": _gated}
