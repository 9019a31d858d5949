"""List the nodes of an ONNX file that no layer computes, for ``--json``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypedDict, cast

from ..errors import UnsupportedNodes
from . import output


class RefusedNode(TypedDict):
    """A node of an ONNX file that no layer computes."""

    node: str
    operator: str
    opset: int
    reason: str
    hint: str | None


@dataclass(frozen=True)
class RefusedNetwork(output.Schema):
    """An ONNX file with such nodes; the exit code is 65."""

    schema = "chai.show.refused/1"
    file: str
    error: str
    nodes: list[RefusedNode]


@contextmanager
def listed(args: argparse.Namespace) -> Iterator[None]:
    """Print all refused nodes as JSON if the network has any and JSON is asked for; the error goes on."""
    try:
        yield
    except UnsupportedNodes as error:
        if args.json:
            nodes = [cast(RefusedNode, node) for node in error.nodes]
            output.as_json(RefusedNetwork(str(args.net), error.headline, nodes))
        raise
