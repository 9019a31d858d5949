"""Declare a layer's parameters.

A layer's ``Params``, inside its class, is a frozen dataclass with the field names of Caffe's ``*_param`` message and
Caffe's defaults. None means "not set" where Caffe checks ``has_...``; repeated fields are tuples. The parser fills it by
reflection and checks the declared ranges, so a layer never sees a value outside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SIZE = 65_535  # largest kernel, stride, dilation, group or pad that is accepted


def within(low: float, high: float, default: Any = None) -> Any:
    """Declare a number, or repeated numbers (default ``()``), from ``low`` to ``high``."""
    return field(default=default, metadata={"within": (low, high)})


def size(default: Any = None) -> Any:
    """Declare a length in elements, at least 1."""
    return within(1, SIZE, default)


def margin(default: Any = None) -> Any:
    """Declare a padding in elements, at least 0."""
    return within(0, SIZE, default)


def axis_index(default: int | None) -> Any:
    """Declare an axis; negative values count from the last."""
    return within(-32, 31, default)


def choice(*allowed: str, default: str | None) -> Any:
    """Declare an enum with the values that this layer implements; others in the schema are refused by name."""
    return field(default=default, metadata={"choice": allowed})


def nested(cls: type, *, repeated: bool = False) -> Any:
    """Declare a nested message, filled into ``cls``."""
    return field(default=() if repeated else None, metadata={"nested": cls})


@dataclass(frozen=True)
class NoParams:
    """Parameters of layer types that have none."""


@dataclass(frozen=True)
class BlobShape:
    """Caffe's BlobShape; the range allows Reshape's 0 (copy) and -1 (infer)."""

    dim: tuple[int, ...] = within(-1, 2**31 - 1, ())


SINGLE = "SinglePrecision"  # the type that CHaiDNN assigns to layers computed on the host in float


@dataclass(frozen=True)
class Precision:
    """CHaiDNN's precision_param: formats of a layer's input, output and weights. None: not set.

    A ``quant_type`` of SINGLE selects the host and float32. CHaiDNN has the type, but no file can select it.

    ``chai_unsigned_in`` and ``chai_unsigned_out`` are chai's own: true for a format with unsigned codes. fl and th stay
    fraction length and threshold of these codes.

    ``scale_gamma_by_std_fl`` and ``scale_beta_fl`` are fraction lengths, less 8, of the tables of a BatchNorm with its Scale,
    which the arithmetic of CHaiDNN alone has.

    ``quant_type_out`` is not a field of the prototxt: it is the output's type if a pass has merged two layers of
    different types.
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
    scale_gamma_by_std_fl: int | None = within(-32, 64)
    scale_beta_fl: int | None = within(-32, 64)
    chai_unsigned_in: bool = False
    chai_unsigned_out: bool = False
    quant_type_out: str | None = None

    def side(self, side: str) -> tuple[str, int, float, bool] | None:
        """Return scheme, bits, value and sign of the format on the "in" or "out" side; None if it is incomplete."""
        scheme = self.quant_type_out if side == "out" and self.quant_type_out else self.quant_type
        bits = getattr(self, f"bw_layer_{side}")
        value = getattr(self, f"{'th' if scheme == 'Xilinx' else 'fl'}_layer_{side}")
        return None if bits is None or value is None else (scheme, bits, value, getattr(self, f"chai_unsigned_{side}"))


@dataclass(frozen=True)
class Filler:
    """The fields of Caffe's FillerParameter that are needed to draw random weights."""

    type: str = "constant"
    value: float = 0.0
    min: float = 0.0
    max: float = 1.0
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True)
class LossParams:
    """Caffe's loss_param: a label that does not count, and the divisor of the sum. The last field is SegNet's."""

    ignore_label: int | None = None
    normalize: bool | None = None
    normalization: str | None = choice("FULL", "VALID", "BATCH_SIZE", "NONE", default=None)
    weight_by_label_freqs: bool = False
