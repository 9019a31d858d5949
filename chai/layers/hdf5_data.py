"""HDF5Data: arrays from HDF5 files."""

from __future__ import annotations

from .data import Data


class HDF5Data(Data):
    """Its tops become inputs of unknown size. The HDF5 files are never opened."""

    message = "hdf5_data_param"
