"""Sums and maxima of three blobs or more, which an overlay computes two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import ceil, floor, log2

from ..fixed import Format
from ..graph import Arithmetic, Layer
from ..tasks import Task

ROUNDING = 0.95  # of the top's step: what all roundings of partial sums may add up to; multipliers are rounded, too


def chain(layer: Layer, target: Arithmetic, operation: str, coefficients: Sequence[float]) -> list[Task]:
    """Return a Task for each bottom of a layer but the first: it combines the bottom with the result of those before.

    Bottoms come in the order of their largest values, so that partial sums are small. A maximum is exact: all Tasks write the
    top's format, and rounding keeps the order of numbers. A sum is within one code of the exact one, unless a partial sum
    leaves its format: see ``_between``.
    """
    top, formats = layer.tops[0], target.formats
    terms = sorted(
        (
            (abs(c) * formats[b].step * max(map(abs, _values(formats[b]))), b, c)
            for b, c in zip(layer.bottoms, coefficients)
        ),
    )
    first, factor, work = terms[0][1], terms[0][2], list[Task]()
    for at, (_, bottom, coefficient) in enumerate(terms[1:], 1):
        part, before = copy(layer), terms[: at + 1]
        part.bottoms = first, bottom
        if at < len(terms) - 1:
            format = formats[top]
            if operation == "SUM":
                unsigned = all(formats[b].unsigned and c >= 0 for _, b, c in before)
                format = _between(formats[top], sum(largest for largest, _, _ in before), len(terms) - 2, unsigned)
            part.slope = part.ceiling = None
            part.tops = (target.blob_between(top, f"{operation.lower()} {at}", target.shapes[top], format),)
        pair = target.eltwise(part, (factor, coefficient)) if operation == "SUM" else target.pair(part, operation)
        work.append(pair)
        first, factor = part.tops[0], 1.0
    return work


def _values(format: Format) -> tuple[int, int]:
    """Return the least and the largest number of a format, in steps."""
    return format.range[0] - format.zero, format.range[1] - format.zero


def _between(top: Format, bound: float, count: int, unsigned: bool) -> Format:
    """Return the format of one of ``count`` partial sums, whose magnitude is ``bound`` at most.

    Its step is the least without saturation, but so small that ``count`` halves of it are less than the top's step. Numbers that
    are no further apart than that have the same code of the top, or neighbouring codes.
    """
    largest = Format(top.scheme, top.bits, 1.0 if top.scheme == "Xilinx" else 0, unsigned).largest
    most = 2 * ROUNDING * top.step / count
    least = min(bound / largest, most) or most
    if top.scheme == "Xilinx":
        return Format(top.scheme, top.bits, least * largest, unsigned)
    return Format(top.scheme, top.bits, -min(ceil(log2(least)), floor(log2(most))), unsigned)
