"""CHaiDNN-v2's registers as constraints: formats with which sums of a convolution stay below 2^17, and results below 512 steps.

A file that holds them on the calibration images means on a CHaiDNN board what it means elsewhere, but for its roundings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..blob import Array
from ..chaidnn_v2.arithmetic import SHIFT, ChaidnnArithmetic
from ..chaidnn_v2.conv import ChaidnnConv, Reach, reach
from ..fixed import Format
from ..graph import Layer
from ..overlay import load
from ..tasks.arithmetic import Arithmetic
from ..tasks.unsupported import Unsupported
from ..util.lazy_numpy import np
from .walk import Batch, BatchState, Emulation

BOARD = "chaidnn-zcu102"  # the overlay with the arithmetic of CHaiDNN's full build
STEPS = 1 << 31 - SHIFT  # of the output, from which on a result changes its sign
SPARE = 1.05  # by which a constraint is met, since roundings move sums
ROUNDS = 8  # of coarser weights


def ends(arithmetic: type[Arithmetic]) -> bool:
    """Return whether an overlay's arithmetic has these registers."""
    return issubclass(arithmetic, ChaidnnArithmetic)


def _reached(layer: Layer, formats: Mapping[str, Format], states: Sequence[BatchState]) -> Reach | str | None:
    """Return how far a convolution reaches on some batches, or why CHaiDNN cannot compute it; None if it is no convolution."""
    if layer.convolution is None or len(layer.bottoms) != 1:
        return None
    every = []
    for state in states:
        try:
            (task,) = layer.lower(ChaidnnArithmetic(load(BOARD), formats, state.device_shapes))
        except Unsupported as reason:
            return str(reason)
        if not isinstance(task, ChaidnnConv):
            return None
        every.append(reach(task, state.code(layer.bottoms[0])))
    return Reach(*(np.max(each, axis=0) for each in zip(*every)))


def hold(layer: Layer, formats: Mapping[str, Format], states: Sequence[BatchState]) -> None:
    """Give a convolution coarser weights in its precision_param, with which its sums are held.

    Weights that have no format there, as those of a folded convolution, stay.
    """
    for _ in range(ROUNDS):
        far = _reached(layer, formats, states)
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


def beyond(emulation: Emulation, batches: Sequence[Batch]) -> dict[str, str]:
    """Return in words what each convolution on the overlay does on these batches that CHaiDNN's registers do not hold."""
    excesses: dict[str, str] = {}

    def look(layer: Layer, states: list[BatchState]) -> None:
        if layer.name in emulation.placed:
            far = _reached(layer, emulation.formats, states)
            if words := far if far is None or isinstance(far, str) else _in_words(far):
                excesses[layer.name] = words

    emulation.run(batches, emulation.graph.output_blobs, look)
    return excesses


def _in_words(far: Reach) -> str:
    """Return what CHaiDNN does not hold; "" for nothing."""
    sums, products = float(far.sums.max(initial=0)), float(far.products.max(initial=0))
    parts = [f"sums up to {sums:.1f} times 2^17"] if sums >= 1 else []
    return " and ".join(parts + ([f"results up to {products * STEPS:.0f} output steps"] if products >= 1 else []))
