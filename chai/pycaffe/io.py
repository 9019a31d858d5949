"""caffe.io: load, preprocess and deprocess images, and convert arrays to and from Caffe's messages.

pycaffe uses scikit-image for images, chai uses Pillow and numpy. Without interpolation the results are equal;
``resize_image`` and ``load_image`` document the differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..blob import Array, Shape, show
from ..errors import ParseError, UsageError
from ..images.files import decoded, read
from ..kernels.pixels import interpolate
from ..limits import limits
from ..runtime.batches import numbers
from ..util.lazy_numpy import np
from .arguments import order_of, pictures, size_of
from .proto import caffe_pb2

if TYPE_CHECKING:
    from PIL.Image import Image

LUMINANCE = (0.2125, 0.7154, 0.0721)  # weights of R, G and B in scikit-image's rgb2gray (ITU-R BT.709)


class Transformer:
    """Converts images (H, W, K) to items (K, H, W) of input blobs, and back; ``inputs`` maps each blob to its shape.

    Steps, in this order and each only if set: resize, transpose, channel_swap, raw_scale (factor), mean (subtracted),
    input_scale (factor).
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        try:  # sizes may be floats: scripts for Python 2 divide them
            self.inputs: dict[str, Shape] = {name: tuple(map(int, shape)) for name, shape in inputs.items()}
        except (AttributeError, TypeError, ValueError):
            raise UsageError(
                f"Transformer: expected shapes by name of input, found {repr(inputs)[:60]}",
                hint='Transformer({"data": net.blobs["data"].data.shape})',
            ) from None
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, Array] = {}
        self.input_scale: dict[str, float] = {}

    def preprocess(self, in_: str, data: Array) -> Array:
        """Return an image of any size as one item of an input blob, float32. ``data`` is not changed."""
        size = self._shape(in_)[2:]
        item = numbers(in_, data, own=True)
        if item.shape[:2] != size:
            item = resize_image(item, size)
        with self._fitting(in_, item, "an image (H, W, K)"):
            if in_ in self.transpose:
                item = item.transpose(self.transpose[in_])
            if in_ in self.channel_swap:
                item = item[list(self.channel_swap[in_])]
            if in_ in self.raw_scale:
                item *= self.raw_scale[in_]
            if in_ in self.mean:
                item -= self.mean[in_]
            if in_ in self.input_scale:
                item *= self.input_scale[in_]
        return item

    def deprocess(self, in_: str, data: Array) -> Array:
        """Convert an item (K, H, W) or (1, K, H, W) back to an image (H, W, K); it is not resized."""
        self._shape(in_)
        item = numbers(in_, data, own=True)
        item = item[0] if item.ndim == 4 and len(item) == 1 else item
        with self._fitting(in_, item, "an item (K, H, W) or (1, K, H, W)"):
            if in_ in self.input_scale:
                item /= self.input_scale[in_]
            if in_ in self.mean:
                item += self.mean[in_]
            if in_ in self.raw_scale:
                item /= self.raw_scale[in_]
            if in_ in self.channel_swap:
                item = item[np.argsort(self.channel_swap[in_])]
            if in_ in self.transpose:
                item = item.transpose(np.argsort(self.transpose[in_]))
        return item

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the axes: (2, 0, 1) turns (H, W, K) into (K, H, W)."""
        self.transpose[in_] = order_of("transpose", order, "axes", len(self._shape(in_)) - 1)

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the channels, which are axis 0 after transpose: (2, 1, 0) turns RGB into BGR."""
        self.channel_swap[in_] = order_of("channel_swap", order, "channels", sum(self._shape(in_)[1:2]))

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set the factor applied before mean subtraction: 255 for networks trained on pixels 0 to 255."""
        self._shape(in_)
        numbers("raw_scale", scale)  # raises an error for what is no number
        self.raw_scale[in_] = scale

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set the factor applied after mean subtraction."""
        self._shape(in_)
        numbers("input_scale", scale)
        self.input_scale[in_] = scale

    def set_mean(self, in_: str, mean: Array) -> None:
        """Set the mean to subtract: one number per channel (K,), or an image (K, H, W), resized to the input if needed.

        Its units and channel order are those after raw_scale and channel_swap.
        """
        shape = self._shape(in_)
        numbers("mean", mean)
        mean = np.asarray(mean)  # in its own precision
        if mean.ndim == 1:
            mean = mean.reshape(-1, 1, 1)
        elif mean.ndim == 2:
            mean = mean[None]
        if mean.ndim != 3 or mean.shape[:1] != shape[1:2]:
            raise UsageError(
                f"a mean of {show(mean.shape)} for input {in_!r} of {show(shape)}",
                hint="one number per channel, or an image (K, H, W): mean.mean(1).mean(1), or mean[0] of (1, K, H, W)",
            )
        if mean.shape[1:] not in ((1, 1), shape[2:]):
            mean = resize_image(mean.transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def _shape(self, in_: str) -> Shape:
        if not isinstance(in_, str) or in_ not in self.inputs:
            raise UsageError(f"{repr(in_)[:60]} is not one of the inputs: {', '.join(self.inputs)}")
        return self.inputs[in_]

    @contextmanager
    def _fitting(self, in_: str, array: Array, expected: str) -> Iterator[None]:
        """Raise UsageError for an array that one of the steps does not take."""
        try:
            yield
        except (ValueError, IndexError) as error:
            shape = show(self.inputs[in_])
            raise UsageError(
                f"input {in_!r} of {shape}: expected {expected}, found {show(array.shape)}: {error}",
                hint="the number of channels and the transpose have to fit the input's",
            ) from None


# -- images


def load_image(filename: str | Path | BinaryIO, color: bool = True) -> Array:
    """Return an image as float32 from 0 to 1: (H, W, 3) RGB, or with ``color=False`` its luminance (H, W, 1).

    Transparency is dropped. As everywhere in chai, EXIF orientation is applied and 16-bit pixels are reduced to 8 bits;
    scikit-image does neither. ``filename`` may be an open file. Raises ParseError for a file that is not an image.
    """
    picture = read(filename) if isinstance(filename, (str, Path)) else _read_opened(filename)
    if not color and picture.mode in ("1", "L", "LA"):
        pixels = np.asarray(picture.convert("L"))[..., None]
    else:
        pixels = np.asarray(picture.convert("RGB"))
        if not color:
            pixels = np.dot(pixels, LUMINANCE)[..., None]
    levels: Array = np.divide(pixels, 255).astype(np.float32)
    return levels


def _read_opened(file: BinaryIO) -> Image:
    """Return the picture of an open file. Raises ParseError for what is none, UsageError for a file of text."""
    name, most = str(getattr(file, "name", "image")), limits().image_bytes
    data = file.read(most + 1) if hasattr(file, "read") else None
    if not isinstance(data, bytes):
        raise UsageError(
            f"load_image: expected a file, found {type(file).__name__}",
            hint='its path, open(path, "rb") or io.BytesIO(data)',
        )
    if len(data) > most:
        raise ParseError(limits().exceeded("image_bytes", len(data)) + " bytes", path=name)
    return decoded(data, name)[0]


_BORDER = ("mode", "cval", "clip")  # options of scikit-image's resize


def resize(
    image: Array, output_shape: Sequence[int], order: int = 1, preserve_range: bool = False, **options: Any
) -> Array:
    """Resize an image as scikit-image's function of that name, which programs take from caffe.io, by ``resize_image``.

    ``output_shape`` is (height, width) or (height, width, K), for an image (H, W) or (H, W, K). Bytes become numbers from 0 to
    1 unless ``preserve_range``. ``options`` of the border change nothing, as the edge is repeated; others are refused.
    """
    for name, value in options.items():
        if name not in _BORDER and (name, value) != ("anti_aliasing", False):
            raise UsageError(
                f"resize has no option {name}={value!r}", hint="chai smooths nothing before it interpolates"
            )
    dims = tuple(output_shape) if isinstance(output_shape, Iterable) else (output_shape,)
    pixels = numbers("image", image)
    if np.asarray(image).dtype == np.uint8 and not preserve_range:
        pixels = pixels / np.float32(255)
    resized = resize_image(pixels[..., None] if pixels.ndim == 2 else pixels, dims[:2], order)
    if dims[2:] not in ((), resized.shape[2:]):
        raise UsageError(f"resize: an image of {show(pixels.shape)} to {dims}: the number of channels stays")
    return resized if dims[2:] or pixels.ndim == 3 else resized[..., 0]


def resize_image(im: Array, new_dims: Sequence[int] | Array, interp_order: int = 1) -> Array:
    """Resize an image (H, W, K) to (height, width), bilinear, float32; always returns a copy.

    scikit-image before 0.15, which pycaffe was written for, gives the same except in the outermost half pixel of an
    enlarged image, which it darkens. Later versions smooth before they shrink, and for other than 1 or 3 channels
    pycaffe aligns the corners instead of the pixels' edges; neither is done here.
    """
    if interp_order != 1:
        raise UsageError(f"interp_order {interp_order}: chai interpolates linearly (1)")
    image, size = numbers("image", im), size_of("resize_image", new_dims)
    if image.ndim != 3 or not image.size:
        raise UsageError(f"resize_image: expected an image (H, W, K), found {show(image.shape)}")
    return np.array(interpolate(image, size))


def oversample(images: Sequence[Array], crop_dims: Sequence[int] | Array) -> Array:
    """Return ten crops (10 N, h, w, K) of N images of one size: four corners and centre, then the same five mirrored."""
    images, (height, width) = pictures("oversample", images), size_of("oversample", crop_dims)
    if not images:
        raise UsageError("oversample: there is no image")
    if len({im.shape for im in images}) != 1 or images[0].ndim < 2:
        shapes = ", ".join(show(im.shape) for im in images)
        raise UsageError(f"oversample: expected images (H, W, K) of one size, found {shapes}")
    h, w = images[0].shape[:2]
    if height > h or width > w:
        raise UsageError(f"oversample: crops of {height}x{width} from images of {h}x{w}")
    corners = [(y, x) for y in (0, h - height) for x in (0, w - width)]
    places = [*corners, ((h - height) // 2, (w - width) // 2)]
    crops = [[im[y : y + height, x : x + width] for y, x in places] for im in images]
    return np.array([c for five in crops for c in (*five, *(crop[:, ::-1] for crop in five))], np.float32)


# -- messages


def blobproto_to_array(blob: Any, return_diff: bool = False) -> Array:
    """Return a BlobProto as an array, with its legacy (num, channels, height, width) or new shape."""
    data = np.array(blob.diff if return_diff else blob.data)
    if any(blob.HasField(name) for name in ("num", "channels", "height", "width")):
        return data.reshape(blob.num, blob.channels, blob.height, blob.width)
    return data.reshape(tuple(blob.shape.dim))


def array_to_blobproto(arr: Array, diff: Array | None = None) -> Any:
    """Return an array as a BlobProto."""
    blob, arr = caffe_pb2.BlobProto(), np.asarray(arr)
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(np.asarray(arr, float).ravel())
    if diff is not None:
        blob.diff.extend(np.asarray(diff, float).ravel())
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[Array]) -> bytes:
    """Serialise arrays as a BlobProtoVector."""
    data: bytes = caffe_pb2.BlobProtoVector(blobs=map(array_to_blobproto, arraylist)).SerializeToString()
    return data


def blobprotovector_str_to_arraylist(str: bytes) -> list[Array]:
    """Return the arrays of a serialised BlobProtoVector."""
    return [blobproto_to_array(blob) for blob in caffe_pb2.BlobProtoVector.FromString(str).blobs]


def array_to_datum(arr: Array, label: int | None = None) -> Any:
    """Return an array (C, H, W) as a Datum: bytes for uint8, else floats."""
    if (arr := np.asarray(arr)).ndim != 3:
        raise UsageError(f"array_to_datum: expected (C, H, W), found {show(arr.shape)}")
    datum = caffe_pb2.Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(np.asarray(arr, float).ravel())
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Any) -> Array:
    """Return the array (C, H, W) of a Datum that holds pixels, not an image file."""
    if datum.encoded:
        raise UsageError("datum_to_array: this Datum holds an image file", hint="Pillow reads io.BytesIO(datum.data)")
    data = np.frombuffer(datum.data, np.uint8) if datum.data else np.array(datum.float_data)
    return data.reshape(datum.channels, datum.height, datum.width)
