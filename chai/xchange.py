"""xChangeLayer: what a custom layer is given, with CHaiDNN's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .lazy import np

if TYPE_CHECKING:
    from .graph import Array, Shape

FIELDS = (
    "in_ptrs",
    "out_ptrs",
    "input_dims",
    "output_dims",
    "float_args",
    "string_args",
    "custom_float_params",
    "params_dims",
    "custom_layer_type",
    "layername",
    "bottom",
    "top",
)


class xChangeLayer:  # noqa: N801 - CHaiDNN's spelling
    """One call of one custom layer.

    ``in_ptrs[i]``, ``out_ptrs[i]``   float32, flat, NCHW, one per bottom and top, in prototxt order
    ``input_dims[i]``, ``output_dims[i]``   int64 vectors; element 0 is the batch of this call
    ``float_args``   float32 vector, in prototxt order
    ``string_args``   tuple of str
    ``custom_float_params[i]``, ``params_dims[i]``   trained parameters, flat float32, and their dims (caffemodel order)
    ``layername``, ``custom_layer_type``   str
    ``bottom[i]``, ``top[i]``   the same memory as in_ptrs and out_ptrs, shaped

    Inputs and parameters are read-only; outputs are zero before the call. The same object is given to compiled and to
    plain Python functions.
    """

    in_ptrs: tuple[Array, ...]
    out_ptrs: tuple[Array, ...]
    input_dims: tuple[Array, ...]
    output_dims: tuple[Array, ...]
    float_args: Array
    string_args: tuple[str, ...]
    custom_float_params: tuple[Array, ...]
    params_dims: tuple[Array, ...]
    custom_layer_type: str
    layername: str
    bottom: tuple[Array, ...]
    top: tuple[Array, ...]

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def values(self) -> tuple[Any, ...]:
        """Every field, in the order of FIELDS: what compiled code receives."""
        return tuple(self.__dict__[f] for f in FIELDS)

    def __repr__(self) -> str:
        return f"<xChangeLayer {self.layername!r} ({self.custom_layer_type})>"


def dims(shape: Shape) -> Array:
    """A shape as int64 vector: blobs of any number of axes then have one type in compiled code."""
    return np.array(shape, np.int64)


def read_only(array: Array) -> Array:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view
