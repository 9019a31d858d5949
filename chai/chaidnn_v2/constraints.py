"""CHaiDNN-v2's registers as constraints: formats with which sums of a convolution stay below 2^17, and results below 512 steps.

A file that holds them on the calibration images means on a CHaiDNN board what it means elsewhere, but for its roundings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..blob import Array, Shape
from ..fixed import Format
from ..overlay import load
from ..tasks import Task
from ..tasks.arithmetic import Arithmetic
from ..tasks.unsupported import Unsupported
from ..tasks.window import Window
from ..util.lazy_numpy import np
from .arithmetic import SHIFT, ChaidnnArithmetic
from .conv import ChaidnnConv, Reach, reach

BOARD = "chaidnn-zcu102"  # the overlay with the arithmetic of CHaiDNN's full build
STEPS = 1 << 31 - SHIFT  # of the output, from which on a result changes its sign
SPARE = 1.05  # by which a constraint is met, since roundings move sums
ROUNDS = 8  # of coarser weights


class Formatted(Protocol):
    """The part of a layer, with a precision_param, that its reach depends on."""

    precision: Any

    @property
    def bottoms(self) -> tuple[str, ...]: ...

    @property
    def convolution(self) -> tuple[Window, int] | None: ...

    def lower(self, target: Any) -> list[Task]: ...


class Coded(Protocol):
    """A batch whose blobs are codes, with their shapes."""

    @property
    def device_shapes(self) -> dict[str, Shape]: ...

    def code(self, blob: str) -> Array: ...


def ends(arithmetic: type[Arithmetic]) -> bool:
    """Return whether an overlay's arithmetic has these registers."""
    return issubclass(arithmetic, ChaidnnArithmetic)


def reached(layer: Formatted, formats: Mapping[str, Format], states: Sequence[Coded]) -> Reach | str | None:
    """Return how far a convolution reaches on some batches, or why CHaiDNN cannot compute it; None if it is no convolution."""
    if layer.convolution is None or len(layer.bottoms) != 1:
        return None
    every = []
    for state in states:
        task = _lowered(layer, formats, state.device_shapes)
        if not isinstance(task, ChaidnnConv):
            return task
        every.append(reach(task, state.code(layer.bottoms[0])))
    return Reach(*(np.max(each, axis=0) for each in zip(*every)))


def _lowered(layer: Formatted, formats: Mapping[str, Format], shapes: Mapping[str, Shape]) -> ChaidnnConv | str | None:
    try:
        (task,) = layer.lower(ChaidnnArithmetic(load(BOARD), formats, shapes))
    except Unsupported as reason:
        return str(reason)
    return task if isinstance(task, ChaidnnConv) else None


def hold(layer: Formatted, formats: Mapping[str, Format], states: Sequence[Coded]) -> None:
    """Give a convolution coarser weights in its precision_param, with which its sums are held.

    Weights that have no format there, as those of a folded convolution, stay.
    """
    for _ in range(ROUNDS):
        far = reached(layer, formats, states)
        if not isinstance(far, Reach) or (far.sums < 1).all():
            return
        p = layer.precision
        assert p is not None
        if p.th_params:
            factors = np.where(far.sums < 1, 1, far.sums * SPARE)
            thresholds = np.broadcast_to(np.array(p.th_params, np.float32), len(factors)) * factors
            layer.precision = replace(p, th_params=tuple(map(float, thresholds.astype(np.float32))))
        elif p.fl_params is not None and isinstance(p.fl_layer_in, int) and isinstance(p.fl_layer_out, int):
            if p.fl_params + p.fl_layer_in - p.fl_layer_out <= 1:
                return  # the smallest shift
            layer.precision = replace(p, fl_params=p.fl_params - 1)
        else:
            return


def widest(formats: Mapping[str, Format], results: Iterable[tuple[str, Array | None]]) -> dict[str, Format]:
    """Return formats with thresholds in which results are held: pairs of a blob and largest magnitudes (M,), if known."""
    wider = dict(formats)
    for blob, largest in results:
        format = wider[blob]
        if format.scheme == "Xilinx" and largest is not None:
            least = float(largest.max(initial=0)) * SPARE * format.largest / STEPS
            wider[blob] = replace(format, value=max(format.value, float(np.float32(least))))
    return wider


def in_words(far: Reach | str | None) -> str:
    """Return what CHaiDNN does not hold of what ``reached`` returned; "" for nothing."""
    if far is None or isinstance(far, str):
        return far or ""
    sums, products = float(far.sums.max(initial=0)), float(far.products.max(initial=0))
    parts = [f"sums up to {sums:.1f} times 2^17"] if sums >= 1 else []
    return " and ".join(parts + ([f"results up to {products * STEPS:.0f} output steps"] if products >= 1 else []))
