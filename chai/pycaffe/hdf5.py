"""Trained parameters in Caffe's HDF5 files: ``data/LAYER/0``, ``data/LAYER/1``, ...

Needs h5py (``pip install "chai-fpga[hdf5]"``). A file cannot make h5py read another one: links and data sets that point out
of it are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

from ..blob import Array, show
from ..errors import ParseError, UsageError
from ..limits import limits
from ..util.files import complete, opened_file
from ..util.lazy_numpy import np

MOST = 64  # blobs of one layer


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise UsageError("HDF5 files need h5py", hint='pip install "chai-fpga[hdf5]"; or use caffemodels') from None
    return h5py


def write(path: str | Path, layers: Iterable[tuple[str, Sequence[Array]]]) -> None:
    """Write the parameters of layers by name. The file appears complete or not at all."""
    h5py = _h5py()
    with complete(path) as part, h5py.File(part, "w") as file:
        data = file.create_group("data")
        for name, blobs in layers:
            group = data.require_group("/".join(_parts(name)))
            for i, blob in enumerate(blobs):
                group.create_dataset(str(i), data=np.asarray(blob, np.float32))


def read(path: str | Path, layers: Iterable[str]) -> dict[str, list[Array]]:
    """Return the parameters of those layers that the file has, float32. Raises ParseError for anything else in it."""
    h5py = _h5py()
    with opened_file(path) as file:  # a clear error for a file that cannot be read, and no other file for h5py
        try:
            with h5py.File(file, "r") as content:
                room = limits().weight_bytes  # of all: many names may stand for one data set
                layers_found: dict[str, list[Array]] = {}
                for name in layers:
                    if blobs := _blobs(h5py, content, name, str(path), room):
                        layers_found[name] = blobs
                        room -= sum(blob.nbytes for blob in blobs)
                return layers_found
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ParseError(f"expected an HDF5 file with Caffe's parameters: {reason}", path=str(path)) from None


def _blobs(h5py: Any, file: Any, layer: str, path: str, room: int) -> list[Array]:
    """Return the parameters of a layer, of at most ``room`` bytes."""
    group = _inside(h5py, file, "data", *_parts(layer))
    blobs: list[Array] = []
    while group is not None and len(blobs) < MOST:
        values = _inside(h5py, group, str(len(blobs)))
        if values is None:
            break
        where = f"layer {layer!r}, blob {len(blobs)}"
        if not isinstance(values, h5py.Dataset) or values.dtype.kind not in "fiu" or values.shape is None:
            raise ParseError(f"{where}: expected numbers", path=path, layer=layer)
        if values.is_virtual or values.external:
            raise ParseError(f"{where}: its numbers are in another file, which is not opened", path=path, layer=layer)
        room -= prod(values.shape) * 4
        if len(values.shape) > limits().axes or room < 0:
            raise ParseError(f"{where} of {show(values.shape)} is too large", path=path, layer=layer)
        blobs.append(np.asarray(values[()], np.float32))
    return blobs


def _parts(layer: str) -> list[str]:
    """Return the groups of a layer's name: in HDF5 a / separates them."""
    return [part for part in layer.split("/") if part]


def _inside(h5py: Any, group: Any, *names: str) -> Any:
    """Return a member of a group by its path, through hard links only; None if there is none."""
    for name in names:
        if not isinstance(group, h5py.Group) or not isinstance(group.get(name, getlink=True), h5py.HardLink):
            return None
        group = group[name]
    return group
