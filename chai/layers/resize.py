"""Resize: maps of another size, by nearest, linear or cubic interpolation, with every rule of ONNX for coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..errors import ModelError
from ..graph.params import SIZE, choice, within
from ..util.lazy_numpy import np
from ._repeat import RepeatLayer

RULES = (
    "HALF_PIXEL",
    "HALF_PIXEL_SYMMETRIC",
    "PYTORCH_HALF_PIXEL",
    "ALIGN_CORNERS",
    "ASYMMETRIC",
    "TF_CROP_AND_RESIZE",
)
ROUNDS = ("ROUND_PREFER_FLOOR", "ROUND_PREFER_CEIL", "FLOOR", "CEIL")
TIE = 0.500001  # of a pixel: what is half a pixel away but for rounding errors is between two, as in onnxruntime


@dataclass(frozen=True)
class ScalingParams:
    """The attributes of ONNX's Resize. An axis of size 0 keeps its size; without scale it is new size / old size."""

    size: tuple[int, ...] = within(0, SIZE, ())
    scale: tuple[float, ...] = within(1e-9, SIZE, ())
    roi: tuple[float, ...] = within(-1e9, 1e9, ())
    mode: str = choice("NEAREST", "LINEAR", "CUBIC", default="NEAREST")
    coordinates: str = choice(*RULES, default="HALF_PIXEL")
    nearest: str = choice(*ROUNDS, default="ROUND_PREFER_FLOOR")
    cubic: float = within(-100, 100, -0.75)
    exclude_outside: bool = False
    antialias: bool = False
    outside: float = 0.0


class Resize(RepeatLayer):
    """Axis by axis: each pixel is a sum of a few pixels of the bottom with weights that the mode gives.

    With antialias a smaller image averages over as many pixels of the bottom as one of its own covers.
    """

    message = "resize_param"
    Params = ScalingParams
    fork = "ONNX"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, p = bottoms[0], self.params
        if len(p.size) != len(shape):
            raise self.wrong(f"{len(p.size)} sizes for the {len(shape)} axes of {show(shape)}")
        if p.scale and len(p.scale) != len(shape):
            raise self.wrong(f"{len(p.scale)} scales for the {len(shape)} axes of {show(shape)}")
        if p.coordinates == "TF_CROP_AND_RESIZE" and len(p.roi) != 2 * len(shape):
            raise self.wrong(f"{len(p.roi)} numbers of roi; TF_CROP_AND_RESIZE needs {2 * len(shape)}")
        return (tuple(new or old for new, old in zip(p.size, shape)),)

    def repeats(self, bottom: Shape) -> tuple[int, int] | str:
        p, top = self.params, self.shapes(bottom)[0]
        crops = p.coordinates == "TF_CROP_AND_RESIZE"
        if p.mode != "NEAREST" or crops or top[:2] != bottom[:2] or (any(p.scale[:2]) and set(p.scale[:2]) != {1}):
            return "it does more than repeat pixels"
        for axis in (2, 3):
            old, new = bottom[axis], top[axis]
            places = self._coordinates(new, old, p.scale[axis] if p.scale else new / old, None)
            if new % old or (np.clip(self._nearest(places)[0], 0, old - 1) != np.arange(new) // (new // old)).any():
                return "it does more than repeat pixels"
        return top[2] // bottom[2], top[3] // bottom[3]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, p = bottoms[0], self.params
        for axis, (new, old) in enumerate(zip(self.shapes(x.shape)[0], x.shape)):
            if new > old == 0:
                raise self.failure(
                    ModelError(f"{show(x.shape)} has nothing that {new} along axis {axis} could be made of")
                )
            scale = p.scale[axis] if p.scale else new / old
            crop = (p.roi[axis], p.roi[axis + x.ndim]) if p.coordinates == "TF_CROP_AND_RESIZE" else None
            if new != old or scale != 1 or (crop not in (None, (0, 1))):
                x = self._along(x, axis, self._coordinates(new, old, scale, crop), scale, crop is not None)
        return (x,)

    def _coordinates(self, new: int, old: int, scale: float, crop: tuple[float, float] | None) -> Array:
        """Return for each new pixel its place among the old ones, rounded to float32 where onnxruntime rounds it."""
        rule = self.params.coordinates
        i: Array = np.arange(new, dtype=np.float64 if rule == "HALF_PIXEL_SYMMETRIC" else np.float32)
        if rule == "ALIGN_CORNERS":
            return i * (old - 1) / (new - 1) if new > 1 else i * 0
        if crop is not None:
            start, end = crop
            if new == 1:
                return i + (start + end) * (old - 1) / 2
            return start * (old - 1) + i * (end - start) * (old - 1) / (new - 1)
        if rule == "ASYMMETRIC":
            return i / scale
        if rule == "PYTORCH_HALF_PIXEL" and new == 1:
            return i * 0 - 0.5
        shift: Array | float = 0.0
        if rule == "HALF_PIXEL_SYMMETRIC":  # the map's centre stays, although its size was rounded
            shift = old / 2 * (1 - new / np.array([scale * old], np.float32))
        return np.asarray(shift + (i + 0.5) / scale - 0.5, np.float32)

    def _along(self, x: Array, axis: int, places: Array, scale: float, cropped: bool) -> Array:
        """Return a blob with one axis resized."""
        old, p = x.shape[axis], self.params
        taps, weights = self._nearest(places) if p.mode == "NEAREST" else self._weights(places, scale)
        if p.exclude_outside:
            weights = np.where((taps < 0) | (taps >= old), 0, weights)
            weights = weights / weights.sum(0)
        taps = np.clip(taps, 0, old - 1)
        lead = (-1, *(1,) * (x.ndim - axis - 1))
        if len(taps) == 1:
            y = np.take(x, taps[0], axis)
        else:
            y = sum(np.take(x, tap, axis) * w.astype(np.float32).reshape(lead) for tap, w in zip(taps, weights))
        if cropped:
            y = np.where(((places < 0) | (places > old - 1)).reshape(lead), np.float32(p.outside), y)
        result: Array = np.asarray(y, np.float32)
        return result

    def _nearest(self, places: Array) -> tuple[Array, Array]:
        """Return the one old pixel of each new one."""
        places = places.astype(np.float64)  # in which sums with TIE are exact enough
        rounded = {
            "ROUND_PREFER_FLOOR": np.ceil(places - TIE),
            "ROUND_PREFER_CEIL": np.floor(places + TIE),
            "FLOOR": np.floor(places),
            "CEIL": np.ceil(places),
        }[self.params.nearest]
        return rounded.astype(np.intp)[None], np.ones((1, len(places)))

    def _weights(self, places: Array, scale: float) -> tuple[Array, Array]:
        """Return the old pixels of each new one, (taps, new), and their weights, whose sum is 1."""
        reach = 1 if self.params.mode == "LINEAR" else 2
        narrow = min(scale, 1.0) if self.params.antialias else 1.0
        first = np.floor(places).astype(np.intp)
        extent = int(np.ceil(reach / narrow))
        taps = first[None] + np.arange(1 - extent, extent + 1)[:, None]
        distances = np.abs(taps - places[None]) * narrow
        weights = np.maximum(1 - distances, 0) if reach == 1 else cubic_weight(distances, self.params.cubic)
        return taps, weights / weights.sum(0) if self.params.antialias else weights


def cubic_weight(distance: Array, a: float) -> Array:
    """Return Keys' kernel (Cubic convolution interpolation, 1981) with parameter ``a``."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
