"""Schema of ``chai show --json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .schema import Schema

if TYPE_CHECKING:
    from ..report.layer_rows import LayerRow
    from .schema_parts import Activations, CoarserSteps, SegmentCost


@dataclass(frozen=True)
class Show(Schema):
    """A prototxt, a prototxt planned for an overlay, or a compiled network.

    ``overlay`` and all keys after it are null without an overlay; ``batch`` is the plan's batch.
    """

    schema = "chai.show/2"
    network: str
    file: str
    compiled: bool
    weights: bool
    inputs: dict[str, list[int] | None]
    outputs: list[str]
    notes: list[str]
    composed: dict[str, list[str]]
    layers: list[LayerRow]
    preprocess: str | None = None
    labels: int | None = None
    overlay: str | None = None
    build: str | None = None
    batch: int | None = None
    formats: str | None = None
    open_sums: list[str] | None = None
    coarser: dict[str, CoarserSteps] | None = None
    conversions: list[str] | None = None
    merged: list[list[str]] | None = None
    tasks: int | None = None
    segments: int | None = None
    cycles: int | None = None
    modelled_fps: float | None = None
    modelled_fps_batch_1: float | None = None
    costs: list[SegmentCost] | None = None
    activation_bytes: Activations | None = None
    constant_bytes: int | None = None
