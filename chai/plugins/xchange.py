"""xChangeLayer: the argument of a custom layer's function, with CHaiDNN's names."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..blob import Array, Shape
from ..text import visible
from ..util.lazy_numpy import np

# CHaiDNN's qf_format: bits and fraction bits of input, output, weights and bias.
qformat = namedtuple("qformat", "ip_bw ip_fbits op_bw op_fbits wt_bw wt_fbits bs_bw bs_fbits")


class xChangeLayer:  # noqa: N801 - CHaiDNN's spelling
    """One call of one custom layer.

    ``in_ptrs[i]``, ``out_ptrs[i]``   flat, one per bottom and top, in prototxt order: float32 in NCHW order unless the
                       decorator has other options (``ports=2``: bottom i at in_ptrs[2*i], as in CHaiDNN)
    ``bottom[i]``, ``top[i]``   the same memory, shaped
    ``input_dims[i]``, ``output_dims[i]``   int64 vectors; element 0 is the batch of this call
    ``output_dim``   output_dims[0]
    ``float_args``, ``string_args``   float32 vector and tuple of str, in prototxt order
    ``custom_float_params[i]``, ``params_dims[i]``   trained parameters, flat float32, and their dims (caffemodel order);
                       ``n_params`` is their number
    ``wts_ptrs``, ``bias_ptr``   all of custom_float_params but the last, and the last; empty if there are none
    ``custom_reluflag``   1: the function must apply a ReLU (only with ``fuse=("ReLU",)``)
    ``layername``, ``custom_layer_type``   str
    ``qf_format``      ip_bw, ip_fbits, op_bw, op_fbits, wt_bw, wt_fbits, bs_bw, bs_fbits; 0 if precision_param lacks them
    ``float_params``   th_in, th_out, and the steps of input and output, float32; 0 if there are none
    ``kernMode``, ``prev_kernMode``   0 Xilinx, 1 DynamicFixed: quantisation of the layer and of its input
    ``kernType``, ``prev_kernType``, ``kernexecType``   11 (custom), the type of the layer before as CHaiDNN numbers it or -1,
                       "software"
    ``input_sizebytes``, ``output_sizebytes``, ``output_size``   int64: bytes per bottom and top; elements of top 0 per image
    ``params``, ``mean``, ``resize_h``, ``resize_w``, ``en_batch_size_one``   of CHaiDNN's built-in layers; zeros here
    ``pitches[i]``, ``offset[i]``   elements between neighbours on each axis of bottom i, and before its first: dense, 0
    ``zero_points[i]``, ``code_ranges[i]``   int64, of codes: the code of value 0, and the lowest and highest code of bottom
                       i, after the last bottom of the tops; 0 for float32

    Plain Python also has: ``data`` (results of setup), ``in_place`` (bottom and top of each pair that is one blob in the
    prototxt), ``param(i)`` (trained parameter i, shaped), ``startclk``
    and ``endclk`` (seconds, of the last call), ``layer_done``, ``previous`` and ``next`` (neighbours' names),
    ``xtra_ptrs``, ``ref_path`` and ``out_path`` (empty).

    Inputs and parameters are read-only; outputs hold the value 0 before the call, or with ``inplace`` a copy of the input.
    Compiled and plain Python functions get the same object.
    """

    # the first four differ in every call, all others are constant; those with a value here are so in every layer
    in_ptrs: tuple[Array, ...] = ()
    out_ptrs: tuple[Array, ...] = ()
    bottom: tuple[Array, ...] = ()
    top: tuple[Array, ...] = ()
    input_dims: tuple[Array, ...]
    output_dims: tuple[Array, ...]
    output_dim: Array
    float_args: Array
    string_args: tuple[str, ...]
    custom_float_params: tuple[Array, ...]
    params_dims: tuple[Array, ...]
    n_params: int
    wts_ptrs: tuple[Array, ...]
    bias_ptr: Array
    custom_reluflag: int
    custom_layer_type: str
    layername: str
    qf_format: qformat
    float_params: Array
    kernType: int = 11  # XCUSTOM
    prev_kernType: int = -1
    kernMode: int
    prev_kernMode: int
    kernexecType: str = "software"
    input_sizebytes: Array
    output_sizebytes: Array
    output_size: int
    params: Array
    mean: Array
    resize_h: int = 0
    resize_w: int = 0
    en_batch_size_one: int = 0
    pitches: tuple[Array, ...]
    offset: Array
    zero_points: Array
    code_ranges: Array
    # in plain Python only
    data: dict[str, Any]
    in_place: tuple[tuple[int, int], ...]
    startclk: float = 0.0
    endclk: float = 0.0
    layer_done: int = 0
    previous: tuple[str, ...]
    next: tuple[str, ...]
    xtra_ptrs: tuple[()] = ()
    ref_path: str = ""
    out_path: str = ""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("out_ptrs", "top"):  # else the network would go on with the zeros in the arrays that were there
            raise AttributeError(f"it replaces x.{name}")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"xChangeLayer has no field {name!r}", name=name, obj=self)

    def param(self, index: int) -> Array:
        """Return trained parameter ``index`` in its own shape. Plain Python only."""
        shaped: Array = self.custom_float_params[index].reshape(tuple(self.params_dims[index]))
        return shaped

    def __repr__(self) -> str:
        return visible(f"<xChangeLayer {self.layername!r} ({self.custom_layer_type})>")


FIELDS = tuple(xChangeLayer.__annotations__)
VARYING = FIELDS[:4]
COMPILED = FIELDS[: FIELDS.index("data")]
DEFAULTS = {name: value for name, value in vars(xChangeLayer).items() if name in FIELDS}


def dims(shape: Shape) -> Array:
    """Return a shape as int64 vector, which has one type in compiled code for any number of axes."""
    return np.array(shape, np.int64)


def read_only(array: Array) -> Array:
    """Return a read-only view."""
    view: Array = array[...]
    view.setflags(write=False)
    return view


def of_call(
    names: Collection[str], bottoms: Sequence[Array], tops: Sequence[Array], ports: int
) -> list[tuple[Array, ...]]:
    """Return those of the fields VARYING that ``names`` has, in this order, for contiguous arrays of a call.

    Bottoms are read-only; ``ports`` is how often each is in in_ptrs.
    """
    fields: list[tuple[Array, ...]] = []
    kept = tuple([read_only(b) for b in bottoms]) if "in_ptrs" in names or "bottom" in names else ()
    if "in_ptrs" in names:
        flat = tuple([b.ravel() for b in kept])
        fields.append(flat if ports == 1 else tuple([b for b in flat for _ in range(ports)]))
    if "out_ptrs" in names:
        fields.append(tuple([t.ravel() for t in tops]))
    if "bottom" in names:
        fields.append(kept)
    if "top" in names:
        fields.append(tuple(tops))
    return fields
