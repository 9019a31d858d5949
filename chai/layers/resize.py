"""Maps of another size.

Resize: maps of another size, by nearest, linear or cubic interpolation, with every rule of ONNX for coordinates.
GridSample: a map read at places that another blob has, as by torch.nn.functional.grid_sample.
Interp: bilinear resizing of a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..blob import Array, Shape, show
from ..errors import ModelError
from ..graph import Layer
from ..graph.params import SIZE, MessageFields, choice, within
from ..text import number_of
from ..util.lazy_numpy import np
from .repeat import RepeatLayer

TIE = 0.500001  # of a pixel: what is half a pixel away but for rounding errors is between two, as in onnxruntime


class Resize(RepeatLayer):
    """Axis by axis: each pixel is a sum of a few pixels of the bottom with weights that the mode gives.

    With antialias a smaller image averages over as many pixels of the bottom as one of its own covers.
    """

    message = "resize_param"
    fork = "ONNX"

    class Params(MessageFields):
        """The attributes of ONNX's Resize. An axis of size 0 keeps its size; without scale it is new size / old size."""

        size: tuple[int, ...] = within(0, SIZE, ())
        scale: tuple[float, ...] = within(1e-9, SIZE, ())
        roi: tuple[float, ...] = within(-1e9, 1e9, ())
        mode: str = choice("NEAREST", "LINEAR", "CUBIC", default="NEAREST")
        coordinates: str = choice(
            *("HALF_PIXEL", "HALF_PIXEL_SYMMETRIC", "PYTORCH_HALF_PIXEL", "ALIGN_CORNERS"),
            *("ASYMMETRIC", "TF_CROP_AND_RESIZE"),
            default="HALF_PIXEL",
        )
        nearest: str = choice("ROUND_PREFER_FLOOR", "ROUND_PREFER_CEIL", "FLOOR", "CEIL", default="ROUND_PREFER_FLOOR")
        cubic: float = within(-100, 100, -0.75)
        exclude_outside: bool = False
        antialias: bool = False
        outside: float = 0.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, p = bottoms[0], self.params
        for what, values in (("size", p.size), ("scale", p.scale or p.size)):
            if len(values) != len(shape):
                numbers = f"{number_of(len(values), what)} for the {number_of(len(shape), 'axis')}"
                raise self.wrong(f"{numbers} of {show(shape)}")
        if p.coordinates == "TF_CROP_AND_RESIZE" and len(p.roi) != 2 * len(shape):
            raise self.wrong(f"{number_of(len(p.roi), 'number')} of roi; TF_CROP_AND_RESIZE needs {2 * len(shape)}")
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


class GridSample(Layer):
    """Bottoms: maps (N, C, ...) of any number of axes, and places (N, ..., axes), the last axis of the map first.

    -1 and 1 are the map's ends: the centres of its last pixels with align_corners, else their edges.
    """

    fork = "ONNX"
    bottoms_allowed = (2, 2)
    new_tops = True

    class Params(MessageFields):
        """Interpolation, and what is outside the map: 0, its nearest pixel, or the map mirrored."""

        mode: str = choice("LINEAR", "NEAREST", "CUBIC", default="LINEAR")
        outside: str = choice("ZEROS", "BORDER", "REFLECTION", default="ZEROS")
        align_corners: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        maps, places = bottoms
        if len(maps) < 3 or len(places) != len(maps) or places[0] != maps[0] or places[-1] != len(maps) - 2:
            raise self.wrong(
                f"maps {show(maps)} and places {show(places)}; expected as many axes and images, and a number for each axis"
            )
        return ((*maps[:2], *places[1:-1]),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        maps, places = bottoms
        n, c, *sizes = maps.shape
        y = np.zeros(self.shapes(maps.shape, places.shape)[0], np.float32)
        for image, at, out in zip(maps.reshape(n, c, -1), places.reshape(n, -1, len(sizes)), y.reshape(n, c, -1)):
            axes = [[*self._taps(at[:, -1 - i].astype(np.float64), size)] for i, size in enumerate(sizes)]
            for taps in product(*axes):
                index, weight = np.zeros(len(at), np.intp), np.ones(len(at))
                for size, (pixel, share) in zip(sizes, taps):
                    index, weight = index * size + pixel, weight * share
                out += image[:, index] * weight.astype(np.float32)
        return (y,)

    def _taps(self, places: Array, size: int) -> Iterator[tuple[Array, Array]]:
        """Yield the pixels of an axis that are read at these places, and their weights (0 outside the map)."""
        p = self.params
        at = (places + 1) / 2 * (size - 1) if p.align_corners else ((places + 1) * size - 1) / 2
        at = np.where(np.isfinite(at), at, -1e9)
        at = self._inside(np.rint(at) if p.mode == "NEAREST" else at, size)
        first = np.floor(at)
        for tap in {"NEAREST": (0,), "LINEAR": (0, 1), "CUBIC": (-1, 0, 1, 2)}[p.mode]:
            pixel, distance = first + tap, np.abs(at - first - tap)
            weight = cubic_weight(distance, -0.75) if p.mode == "CUBIC" else 1 - distance
            if p.outside == "ZEROS":
                weight = np.where((pixel < 0) | (pixel >= size), 0, weight)
            else:
                pixel = self._inside(pixel, size)
            yield np.clip(pixel, 0, size - 1).astype(np.intp), weight

    def _inside(self, at: Array, size: int) -> Array:
        """Return places of which those outside the map are moved into it."""
        low, high = (0.0, size - 1.0) if self.params.align_corners else (-0.5, size - 0.5)
        if self.params.outside == "ZEROS":
            return at
        outside = (at < low) | (at > high)
        if self.params.outside == "BORDER":
            return np.where(outside, np.clip(at, 0, size - 1), at)
        if high == low:
            return np.zeros_like(at)
        turn = (at - low) % (2 * (high - low))
        mirrored = low + np.minimum(turn, 2 * (high - low) - turn)
        return np.where(outside, mirrored, at)


class Interp(Layer):
    """Corners are aligned: zoom_factor z turns size into (size - 1) * z + 1, shrink_factor s into (size - 1) / s + 1.

    A single factor has priority over height and width, and these over both factors; full_zoom_factor (Synopsys) comes last
    and gives size * z.
    """

    fork = "hszhao/PSPNet"

    class Params(MessageFields):
        """shrink_factor and zoom_factor, or height and width, or full_zoom_factor; pads are at most 0 and crop the bottom."""

        height: int | None = within(1, SIZE)
        width: int | None = within(1, SIZE)
        zoom_factor: int | None = within(1, SIZE)
        shrink_factor: int | None = within(1, SIZE)
        pad_beg: int = within(-SIZE, 0, 0)
        pad_end: int = within(-SIZE, 0, 0)
        full_zoom_factor: int | None = within(1, SIZE)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, *old = self.spatial(bottoms[0])
        p = self.params
        size = [d + p.pad_beg + p.pad_end for d in old]
        if min(size) < 1:
            raise self.wrong(f"pad_beg {p.pad_beg} and pad_end {p.pad_end} leave nothing of {show(tuple(old))}")
        zoom, shrink = p.zoom_factor, p.shrink_factor
        if p.height and p.width and bool(zoom) == bool(shrink):
            return ((n, c, p.height, p.width),)
        if zoom or shrink:
            size = [(d - 1) // (shrink or 1) + 1 for d in size]
            return ((n, c, *((d - 1) * (zoom or 1) + 1 for d in size)),)
        if not p.full_zoom_factor:
            raise self.wrong("the new size is missing", hint="height and width, zoom_factor or shrink_factor")
        return ((n, c, *(d * p.full_zoom_factor for d in size)),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, begin = bottoms[0], -self.params.pad_beg
        out = self.shapes(x.shape)[0][2:]
        h, w = (d + self.params.pad_end for d in x.shape[2:])
        return (resize(x[:, :, begin:h, begin:w], out),)


def resize(x: Array, out: Shape) -> Array:
    """Resize x (N, C, H, W) to (N, C, *out), linearly: pixel i samples i * (size - 1) / (new size - 1), or 0 if new size is 1."""
    for axis, new in ((2, out[0]), (3, out[1])):
        old = x.shape[axis]
        place = np.arange(new, dtype=np.float32) * np.float32((old - 1) / (new - 1) if new > 1 else 0)
        first = np.minimum(place.astype(np.intp), old - 1)
        weight = (place - first).reshape(-1, *(1,) * (3 - axis)).astype(np.float32)
        x = (1 - weight) * np.take(x, first, axis) + weight * np.take(x, np.minimum(first + 1, old - 1), axis)
    return x
