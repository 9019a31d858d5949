"""Compute the fields of x: the data of a custom function besides its bottoms and tops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from ..blob import Array, Shape
from ..fixed import Format, Precision
from ..graph.params import within
from ..util.lazy_numpy import np
from ..util.sharing import Resources
from .definition import CustomType
from .failure import RunningLayer
from .xchange import DEFAULTS, dims, qformat, read_only


@dataclass(frozen=True)
class CustomParams:
    """CHaiDNN's xcustom_param."""

    top_dim: tuple[int, ...] = within(1, 2**31 - 1, ())
    float_args: tuple[float, ...] = ()
    string_args: tuple[str, ...] = ()


class Called(Protocol):
    """The attributes of a layer that a call of its function needs."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    precision: Precision | None
    slope: float | None
    custom: CustomType
    autotune: bool
    jit: bool
    resources: Resources

    @property
    def params(self) -> CustomParams: ...
    @property
    def in_place(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def clamps(self) -> bool: ...
    @property
    def where(self) -> RunningLayer: ...
    def constants(self) -> dict[str, Any]: ...
    def named(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> dict[str, Any]: ...


def constants(blobs: Sequence[Array], shapes: Sequence[Any] | None = None) -> dict[str, Any]:
    """Return the fields of x for trained parameters. ``shapes``: dims of flat parameters, if they are known."""
    flat = tuple(np.ascontiguousarray(b, np.float32).reshape(-1) for b in blobs)
    if shapes is None or len(shapes) != len(flat) or any(prod(s) != f.size for s, f in zip(shapes, flat)):
        shapes = [b.shape for b in blobs]
    params = tuple(map(read_only, flat))
    return {
        "custom_float_params": params,
        "params_dims": tuple(dims(tuple(s)) for s in shapes),
        "n_params": len(params),
        "wts_ptrs": params[:-1],
        "bias_ptr": params[-1] if params else np.zeros(0, np.float32),
    }


def fixed_fields(layer: Called, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> dict[str, Any]:
    """Return the fields of x that depend on sizes, arguments and formats."""
    p, precision = layer.params, layer.precision
    mode = 1 if precision is not None and precision.quant_type == "DynamicFixed" else 0
    sides = ("layer_in", "layer_out", "params")
    formats = [getattr(precision, f"{what}_{side}", 0) or 0 for side in sides for what in ("bw", "fl")]
    return {
        **DEFAULTS,
        "input_dims": tuple(map(dims, inputs)),
        "output_dims": tuple(map(dims, outputs)),
        "output_dim": dims(outputs[0] if outputs else ()),
        "float_args": np.array(p.float_args, np.float32),
        "string_args": p.string_args,
        "custom_reluflag": int(layer.clamps),
        "custom_layer_type": layer.type,
        "layername": layer.name,
        "qf_format": qformat._make((*formats, 0, 0)),
        "float_params": np.array(
            [getattr(precision, f"th_layer_{s}", 0) or 0 for s in ("in", "out")] + [0, 0], np.float32
        ),
        "kernMode": mode,
        "prev_kernMode": mode,
        "input_sizebytes": np.array([4 * prod(s) for s in inputs], np.int64),
        "output_sizebytes": np.array([4 * prod(s) for s in outputs], np.int64),
        "output_size": prod(outputs[0][1:]) if outputs else 0,
        "params": np.zeros(128, np.int32),
        "mean": np.zeros(0, np.float32),
        "pitches": tuple(dims(tuple(prod(s[i + 1 :]) for i in range(len(s)))) for s in inputs),
        "offset": np.zeros(len(inputs), np.int64),
        "zero_points": np.zeros(len(inputs) + len(outputs), np.int64),
        "code_ranges": np.zeros((len(inputs) + len(outputs), 2), np.int64),
        "in_place": layer.in_place,
        "previous": layer.bottoms,
        "next": layer.tops,
    }


def code_fields(bottoms: tuple[Format, ...], tops: tuple[Format, ...]) -> Mapping[str, Any]:
    """Return the format fields of int8 implementations.

    They are those of the first bottom and top, then the steps of further bottoms; zero points and ranges of codes of all
    bottoms, then of all tops.
    """
    into, out = bottoms[0], tops[0]
    bits = [(f.bits, int(f.value) if f.scheme == "DynamicFixed" else 0) for f in (into, out)]
    thresholds = [f.value if f.scheme == "Xilinx" else 0.0 for f in (into, out)]
    steps = [into.step, out.step, *(f.step for f in bottoms[1:])]
    return {
        "qf_format": qformat(*(n for pair in (*bits, (0, 0), (0, 0)) for n in pair)),
        "float_params": np.array(thresholds + steps, np.float32),
        "kernMode": int(out.scheme == "DynamicFixed"),
        "prev_kernMode": int(into.scheme == "DynamicFixed"),
        "zero_points": np.array([f.zero for f in (*bottoms, *tops)], np.int64),
        "code_ranges": np.array([f.range for f in (*bottoms, *tops)], np.int64),
    }
