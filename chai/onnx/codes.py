"""Codes of quantised files: what QuantizeLinear and DequantizeLinear say of them, as formats and as constants."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array
from ..fixed import Format
from ..util.lazy_numpy import np
from .constants import Constant
from .refusal import Refused

BOUNDS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
STORED = (*BOUNDS, "int32")  # types of constants
# zero points of codes of both signs; 127 is that of onnxruntime 1.23, whose symmetric uint8 end at 254
MIDDLES = {"uint8": (128, 127), "int8": (0,)}
_SYMMETRIC = 'quantise with extra_options={"ActivationSymmetric": True, "WeightSymmetric": True} of onnxruntime'


@dataclass(frozen=True, eq=False)
class CodeSteps:
    """The values of codes: value = (code - zero) * scale.

    ``scale``   float32 (n,), one number or one for each index of ``axis``
    ``zero``    zero points, int64 (n,)
    """

    dtype: str
    scale: Array
    zero: Array
    axis: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CodeSteps) or self.dtype != other.dtype:
            return False
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)

    def along(self, array: Array, rank: int) -> Array:
        """Return numbers of ``scale`` or ``zero`` in a shape that broadcasts over codes of so many axes."""
        if self.axis is None:
            return array.reshape(())
        return array.reshape([-1 if axis == self.axis else 1 for axis in range(rank)])

    @property
    def format(self) -> Format:
        """Return the same steps as a format of chai. Raises Refused if there is none."""
        if self.dtype not in ("uint8", "int8"):
            raise Refused(f"codes of type {self.dtype}; formats have 8 bits, uint8 or int8")
        if self.axis is not None:
            raise Refused("a scale for each channel of a blob; a format has one")
        zero, low, middles = int(self.zero[0]), BOUNDS[self.dtype][0], MIDDLES[self.dtype]
        if zero not in (low, *middles):
            what = f"its zero point is {zero}; formats have {middles[0]} (both signs) or {low} (none below 0)"
            raise Refused(what, hint=_SYMMETRIC)
        unsigned = zero == low
        threshold = np.float32(self.scale[0]) * np.float32(255 if unsigned else 127)
        return Format("Xilinx", 8, float(threshold), unsigned)

    def encode(self, values: Array) -> Array:
        """Return the codes of numbers, rounded half to even and saturated."""
        low, high = BOUNDS[self.dtype]
        steps = np.rint(values.astype(np.float32) / self.along(self.scale, values.ndim))
        codes: Array = np.clip(steps + self.along(self.zero, values.ndim), low, high).astype(self.dtype)
        return codes


class DecodedTensor(Constant):
    """A constant of codes, whose numbers are computed when they are asked for."""

    def __init__(self, codes: Constant, steps: CodeSteps) -> None:
        self.shape, self.dtype = codes.shape, "float32"
        self._codes, self._steps = codes, steps

    def array(self) -> Array:
        steps, codes = self._steps, self._codes.array()
        # codes of up to 16 bits, and their differences from a zero point, are float32 exactly
        values: Array = codes.astype(np.float32 if codes.dtype.itemsize < 4 else np.float64)
        values -= steps.along(steps.zero, values.ndim).astype(values.dtype)
        values *= steps.along(steps.scale, values.ndim)
        return values.astype(np.float32, copy=False)

    @property
    def thresholds(self) -> Constant:
        """Return for each number the threshold of its step. Raises Refused for codes that weights cannot have."""
        steps = self._steps
        if steps.dtype not in ("uint8", "int8"):
            raise Refused(f"its weights have codes of type {steps.dtype}; weights have 8 bits, uint8 or int8")
        middles = MIDDLES[steps.dtype]
        if odd := [zero for zero in steps.zero.tolist() if zero not in middles]:
            raise Refused(f"its weights have zero point {odd[0]}, expected {middles[0]}", hint=_SYMMETRIC)
        if 127 in steps.zero and self._codes.array().max(initial=0) > 254:
            what = "its weights have the code 255 beside the zero point 127, expected at most 254"
            raise Refused(what, hint=_SYMMETRIC)
        each = steps.along(steps.scale * np.float32(127), len(self.shape))
        return Constant(np.broadcast_to(each, self.shape))
