"""How a layer declares its parameters.

A layer's ``Params`` is a frozen dataclass whose fields carry the names of Caffe's ``*_param`` message and whose
defaults are Caffe's. None means "not set" where Caffe asks ``has_...``; repeated fields are tuples. The parser
fills it by reflection and checks the declared ranges, so a layer never meets a value it cannot work with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SIZE = 65_535  # largest kernel, stride, dilation, group or pad that is accepted


def within(low: float, high: float, default: Any = None) -> Any:
    """Return a number, or a repeated one (default ``()``), from ``low`` to ``high``."""
    return field(default=default, metadata={"within": (low, high)})


def size(default: Any = None) -> Any:
    """Return a length in elements, at least 1."""
    return within(1, SIZE, default)


def margin(default: Any = None) -> Any:
    """Return a padding in elements, at least 0."""
    return within(0, SIZE, default)


def axis_index(default: int | None) -> Any:
    """Return an axis; negative counts from the last."""
    return within(-32, 31, default)


def choice(*allowed: str, default: str) -> Any:
    """Return an enum value that this layer implements; the schema's others are refused by name."""
    return field(default=default, metadata={"choice": allowed})


def nested(cls: type, *, repeated: bool = False) -> Any:
    """Return a message inside the message, filled into ``cls``."""
    return field(default=() if repeated else None, metadata={"nested": cls})


@dataclass(frozen=True)
class NoParams:
    """For layer types without parameters."""


@dataclass(frozen=True)
class BlobShape:
    """Caffe's BlobShape; the range allows Reshape's 0 (copy) and -1 (infer)."""

    dim: tuple[int, ...] = within(-1, 2**31 - 1, ())


SINGLE = "SinglePrecision"  # the type that CHaiDNN itself gives to layers which its host computes in float


@dataclass(frozen=True)
class Precision:
    """CHaiDNN's precision_param: formats of a layer's input, output and weights. None: not set.

    A ``quant_type`` of SINGLE asks for the host and float32. CHaiDNN has the type, but lets no file ask for it.

    ``quant_type_out`` is no field of the prototxt: it says the type of the output where a pass has put two layers of
    different types together.
    """

    quant_type: str = "DynamicFixed"
    bw_layer_in: int | None = None
    bw_layer_out: int | None = None
    bw_params: int | None = None
    fl_layer_in: int | None = within(-32, 64)
    fl_layer_out: int | None = within(-32, 64)
    fl_params: int | None = within(-32, 64)
    th_layer_in: float | None = within(0, 1e30)
    th_layer_out: float | None = within(0, 1e30)
    th_params: tuple[float, ...] = within(0, 1e30, ())
    quant_type_out: str | None = None

    def side(self, side: str) -> tuple[str, int, float] | None:
        """Scheme, bits and value of the format of the "in" or "out" side; None where it is not complete."""
        scheme = self.quant_type_out if side == "out" and self.quant_type_out else self.quant_type
        bits = getattr(self, f"bw_layer_{side}")
        value = getattr(self, f"{'th' if scheme == 'Xilinx' else 'fl'}_layer_{side}")
        return None if bits is None or value is None else (scheme, bits, value)


@dataclass(frozen=True)
class Filler:
    """Caffe's FillerParameter, as far as drawing random weights needs it."""

    type: str = "constant"
    value: float = 0.0
    min: float = 0.0
    max: float = 1.0
    mean: float = 0.0
    std: float = 1.0
