"""HDF5Output: blobs written to a file."""

from __future__ import annotations

from ._training import TrainingLayer


class HDF5Output(TrainingLayer):
    """Dropped at TEST."""
