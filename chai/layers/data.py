"""Layers of training nets that have data of their own, in place of which chai takes the caller's: no file is opened.

AnnotatedData: SSD's images with boxes.
Data: images from an LMDB or LevelDB.
DenseImageData: images and their label maps from a list of files.
DummyData: constant or random blobs, used in Caffe for timing.
HDF5Data: arrays from HDF5 files.
ImageData: images from a list of files.
MemoryData: arrays passed in memory.
WindowData: image windows from a list (R-CNN).
"""

from __future__ import annotations

from ..blob import Shape
from ..graph.params import SIZE, BlobShape, MessageFields, nested, within
from ..graph.source import SourceLayer
from .input import Input


class DataSource(SourceLayer):
    """``data`` and optionally ``label``; the first top becomes an input.

    Its height and width are those of transform_param's crop, else those of the type's own fields, else SSD's resize_param.
    """

    def declared(self) -> list[Shape | None]:
        p, transform = self.params, self.transform
        sizes = [transform.crop, transform.resize] if transform else []
        # crop_height and crop_width, or else new_height and new_width
        sizes[1:1] = [(getattr(p, f"{of}_height", 0), getattr(p, f"{of}_width", 0)) for of in ("crop", "new")]
        size = next((pair for pair in sizes if pair and all(pair)), None)
        gray = not getattr(p, "is_color", True) or (transform and transform.force_gray)
        data = (int(getattr(p, "batch_size", None) or 1), 1 if gray else 3, *size) if size else None
        return [data, *[None] * (len(self.tops) - 1)]

    @property
    def notes(self) -> list[str]:
        shape = self.declared()[0]
        if shape is None or hasattr(self.params, "is_color"):
            return []
        return [f"layer {self.name!r} ({self.type}): {shape[1]} channels assumed; the file does not say"]


class Data(DataSource):
    message = "data_param"

    class Params(MessageFields):
        """The batch size of a training net; at run time the caller's array sets it."""

        batch_size: int | None = within(1, 2**31 - 1)


class AnnotatedData(Data):
    pass


class HDF5Data(Data):
    """Its inputs are of unknown size."""

    message = "hdf5_data_param"


class WindowData(Data):
    message = "window_data_param"


class ImageData(DataSource):
    class Params(MessageFields):
        """new_height and new_width resize each image when both are given."""

        batch_size: int = within(1, 2**31 - 1, 1)
        new_height: int = within(0, SIZE, 0)
        new_width: int = within(0, SIZE, 0)
        is_color: bool = True


class DenseImageData(DataSource):
    fork = "alexgkendall/caffe-segnet"

    class Params(MessageFields):
        """crop_height and crop_width, or else new_height and new_width, are the size of the images."""

        batch_size: int | None = within(1, 2**31 - 1)
        new_height: int = within(0, SIZE, 0)
        new_width: int = within(0, SIZE, 0)
        is_color: bool = True
        crop_width: int = within(0, SIZE, 0)
        crop_height: int = within(0, SIZE, 0)


class DummyData(Input):
    class Params(MessageFields):
        """shape, or the legacy num, channels, height and width; one for all tops or one per top."""

        shape: tuple[BlobShape, ...] = nested(BlobShape, repeated=True)
        num: tuple[int, ...] = within(1, SIZE, ())
        channels: tuple[int, ...] = within(1, SIZE, ())
        height: tuple[int, ...] = within(1, SIZE, ())
        width: tuple[int, ...] = within(1, SIZE, ())

    def declared(self) -> list[Shape | None]:
        return self.of_tops([s.dim for s in self.params.shape] or self._legacy())

    def _legacy(self) -> list[Shape | None]:
        """Return the shapes that num, channels, height and width give: each once for all tops, or once per top."""
        p, tops = self.params, len(self.tops)
        columns = [p.num, p.channels, p.height, p.width]
        if not any(columns):
            return []
        if any(len(c) not in (1, tops) for c in columns):
            raise self.wrong(f"num, channels, height and width must each be given once or {tops} times")
        return list(zip(*(c * tops if len(c) == 1 else c for c in columns)))


class MemoryData(SourceLayer):
    """Tops: data of (batch_size, channels, height, width), and labels."""

    class Params(MessageFields):
        batch_size: int = within(0, SIZE, 0)
        channels: int = within(0, SIZE, 0)
        height: int = within(0, SIZE, 0)
        width: int = within(0, SIZE, 0)

    def declared(self) -> list[Shape | None]:
        p = self.params
        data = (p.batch_size, p.channels, p.height, p.width)
        if 0 in data:
            raise self.wrong("batch_size, channels, height and width must all be given")
        return [data, *[(p.batch_size,)] * (len(self.tops) - 1)]
