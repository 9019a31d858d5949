"""Refusals: nodes of an ONNX file that no layer of chai computes, collected into one error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UnsupportedNodes
from ..limits import limits

SHOWN = 3  # further refusals that a message names
LONGEST = 500  # characters of a reason, which may list numbers of the file


class Refused(Exception):
    """Raised where an operator's file cannot express a node; ``hint`` says what to do."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason if len(reason) <= LONGEST else reason[:LONGEST] + " ..."
        self.hint = hint


@dataclass(frozen=True)
class Refusal:
    """One node that cannot run, and why."""

    node: str
    operator: str
    opset: int
    reason: str
    hint: str | None = None


def error_of(path: str, refusals: Sequence[Refusal], nodes: int) -> UnsupportedNodes:
    """Return the one error of a file with refused nodes: the first with its reason, and how many of all would run."""
    first, *others = refusals
    kinds = dict.fromkeys(f"{other.operator} ({other.node!r})" for other in others)
    more = ""
    if others:
        listed = ", ".join([*kinds][:SHOWN])
        more = f"; nor would {listed}" + (f" and {len(others) - SHOWN} more" if len(others) > SHOWN else "")
    what = f"{path}: node {first.node!r} ({first.operator}, opset {first.opset}): {first.reason}"
    what = f"{what}; {nodes - len(refusals)} of {nodes} nodes would run{more}"
    listed_all = tuple(vars(refusal) for refusal in refusals)
    return UnsupportedNodes(what, layer=first.node[: limits().name_length], hint=first.hint, nodes=listed_all)
