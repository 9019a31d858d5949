"""Precision: the formats that a prototxt states for a layer, CHaiDNN's precision_param."""

from __future__ import annotations

from dataclasses import dataclass, field

# the fraction lengths and thresholds that it may have
FRACTION = {"within": (-32, 64)}
THRESHOLD = {"within": (0, 1e30)}


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
    fl_layer_in: int | None = field(default=None, metadata=FRACTION)
    fl_layer_out: int | None = field(default=None, metadata=FRACTION)
    fl_params: int | None = field(default=None, metadata=FRACTION)
    th_layer_in: float | None = field(default=None, metadata=THRESHOLD)
    th_layer_out: float | None = field(default=None, metadata=THRESHOLD)
    th_params: tuple[float, ...] = field(default=(), metadata=THRESHOLD)
    scale_gamma_by_std_fl: int | None = field(default=None, metadata=FRACTION)
    scale_beta_fl: int | None = field(default=None, metadata=FRACTION)
    chai_unsigned_in: bool = False
    chai_unsigned_out: bool = False
    quant_type_out: str | None = None

    def side(self, side: str) -> tuple[str, int, float, bool] | None:
        """Return scheme, bits, value and sign of the format on the "in" or "out" side; None if it is incomplete."""
        scheme = self.quant_type_out if side == "out" and self.quant_type_out else self.quant_type
        bits = getattr(self, f"bw_layer_{side}")
        value = getattr(self, f"{'th' if scheme == 'Xilinx' else 'fl'}_layer_{side}")
        return None if bits is None or value is None else (scheme, bits, value, getattr(self, f"chai_unsigned_{side}"))
