"""Pictures: an input as bytes, of which a network's preprocessing makes numbers or, where only they are read, codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..blob import Array, Shape, show
from ..errors import UsageError
from ..text import number_of
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..fixed import Format
    from .preprocess import Preprocess

    Feed: TypeAlias = "Array | Pictures"
else:
    Feed = Any

HINT = "net.pictures(files) reads, resizes and crops them"


class Pictures:
    """Pictures for a network's input, as bytes in the input's size.

    ``array``       uint8, N x H x W x 3 in RGB or N x H x W in gray levels, after resize and crop
    ``preprocess``  channel order, raw_scale, mean and scale (default: the network's own)

    ``shape`` is that of the input blob, (N, C, H, W). Raises UsageError for an array of another type or shape.
    """

    ndim = 4

    def __init__(self, array: Any, preprocess: Preprocess | None = None) -> None:
        try:
            self.pixels = pixels = np.asarray(array)
        except ValueError:
            raise UsageError("pictures of different sizes: expected one size", hint=HINT) from None
        self.preprocess = preprocess
        self._coded: tuple[Format, Array] | None = None
        if pixels.dtype != np.uint8:
            hint = (
                "numbers that are preprocessed already go to forward as they are" if pixels.dtype.kind == "f" else HINT
            )
            raise UsageError(f"pictures of {pixels.dtype}: expected bytes (uint8)", hint=hint)
        if not (pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[3] == 3)) or 0 in pixels.shape:
            message = f"pictures of {show(pixels.shape)}: expected N x H x W x 3 (RGB) or N x H x W (gray)"
            raise UsageError(message, hint="array[None] is a batch of one picture" if pixels.ndim == 2 else HINT)
        count, height, width, *channels = pixels.shape
        self.shape: Shape = (count, *(channels or (1,)), height, width)

    def __repr__(self) -> str:
        return f"<chai.Pictures {show(self.shape)}>"

    def __getitem__(self, images: slice | Array | int) -> Pictures:
        """Return some of the pictures."""
        some = self.pixels[images if isinstance(images, slice) else np.atleast_1d(images)]
        return Pictures(some, self.preprocess)

    @property
    def nbytes(self) -> int:
        return int(self.pixels.nbytes)

    @property
    def base(self) -> Array:
        """Return the array that has the memory."""
        return self.pixels if self.pixels.base is None else self.pixels.base

    def copy(self) -> Pictures:
        """Return the same pictures in memory of their own."""
        return Pictures(self.pixels.copy(), self.preprocess)

    def fitting(self, blob: str, shape: Shape | None, preprocess: Preprocess) -> Pictures:
        """Return them with their own preprocessing, else this one, for an input of ``shape``, None if any.

        Raises UsageError unless they have its channels, height and width.
        """
        bound = Pictures(self.pixels, self.preprocess or preprocess)
        if shape is not None and shape[1:] != self.shape[1:]:
            axes = self.pixels.shape
            pictures = f"{number_of(axes[0], 'picture')} of {show(self.shape[1:])}"
            hint = HINT
            if self.pixels.ndim == 3 and axes[2] == 3 and shape[1:] == (3, *axes[:2]):
                hint = "array[None] is a batch of one picture"
            elif len(shape) == 4 and shape[1] != self.shape[1]:
                layout = "N x H x W, gray levels" if shape[1] == 1 else "N x H x W x 3, RGB" if shape[1] == 3 else ""
                hint = f"expected {layout}" if layout else "its input is no picture: feed float32"
            raise UsageError(f"input {blob!r} of {show(shape)}: {pictures} do not fit", hint=hint)
        bound._preprocess.check_channels(self.shape)
        return bound

    def floats(self) -> Array:
        """Return the input blob, float32 (N, C, H, W); by the default Preprocess if they have none."""
        how = self._preprocess
        return np.stack([how.item(pixels, self.shape) for pixels in self.pixels])

    @property
    def by_byte(self) -> bool:
        """Return whether a number depends on nothing but its byte and channel: not with a mean image."""
        return self._preprocess.by_byte(self.shape[1])

    def codes(self, format: Format) -> Array:
        """Return the codes of ``floats``, int8 (N, C, H, W), from a table of each byte's; for pictures ``by_byte``."""
        if self._coded is not None and self._coded[0] == format:
            return self._coded[1]
        from ..kernels.pixels import look_up  # which most passes do without

        how = self._preprocess
        return look_up(self.pixels, how.codes_of_bytes(self.shape, format), how.backwards(self.shape))

    def coded(self, format: Format) -> Pictures:
        """Return them with their ``codes`` in a format, which are not looked up again."""
        coded = Pictures(self.pixels, self.preprocess)
        coded._coded = format, self.codes(format)
        return coded

    @property
    def _preprocess(self) -> Preprocess:
        from .preprocess import Preprocess

        return self.preprocess or Preprocess()


def item_shape(item: Feed) -> Shape:
    """Return the shape (C, H, W) of an item of a batch, float32 or Pictures of one."""
    return item.shape[1:] if isinstance(item, Pictures) else item.shape


def stacked(items: Sequence[Feed]) -> Feed:
    """Return items (C, H, W) as one batch: Pictures, if each is Pictures of one ``by_byte``, else float32.

    With a mean image every reader needs float32, which is made here, once.
    """
    pictures = [item for item in items if isinstance(item, Pictures)]
    if len(pictures) == len(items) and pictures[0].by_byte:
        return Pictures(np.concatenate([item.pixels for item in pictures]), pictures[0].preprocess)
    return np.stack([item.floats()[0] if isinstance(item, Pictures) else item for item in items])


def in_floats(feeds: Mapping[str, Feed]) -> dict[str, Array]:
    """Return what is fed in float32."""
    return {name: feed.floats() if isinstance(feed, Pictures) else feed for name, feed in feeds.items()}
