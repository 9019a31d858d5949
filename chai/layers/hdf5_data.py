"""HDF5Data: arrays from HDF5 files."""

from __future__ import annotations

from ..graph.source import DataSource
from .data import DataParams


class HDF5Data(DataSource):
    """Its tops become inputs of unknown size. The HDF5 files are never opened."""

    message = "hdf5_data_param"
    Params = DataParams
