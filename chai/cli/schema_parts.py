"""Types for the parts of the objects in ``schemas``: what they hold is printed as it is."""

from __future__ import annotations

from typing import TypedDict


class Failure(TypedDict):
    """An input that could not be read or run."""

    file: str
    error: str


class Spread(TypedDict):
    """Milliseconds of several passes."""

    median: float
    min: float
    p90: float


class SegmentCost(TypedDict):
    """A segment on the overlay, and what its layers would take on the host."""

    layers: list[str]
    fpga_ms: float
    host_ms: float


class Activations(TypedDict):
    """Bytes of activations on the device; ``total`` if no two blobs shared any."""

    peak: int
    total: int


class Best(TypedDict):
    """One of the best classes of an image."""

    index: int
    label: str
    score: float


class FoundBox(TypedDict):
    """One box: left, top, right and bottom as shares of the image."""

    label: int
    name: str
    score: float
    box: list[float]


class Covered(TypedDict):
    """A class of a map, and the share of the pixels that have it."""

    index: int
    label: str
    share: float


class ScoresAnswer(TypedDict):
    """What an output of class scores says of an image."""

    top: list[Best]
    probabilities: bool


class BoxesAnswer(TypedDict):
    """What an output of boxes says of an image, and how many boxes are not listed."""

    boxes: list[FoundBox]
    more: int
    below_threshold: int


class BlobAnswer(TypedDict):
    """A summary of any other output."""

    shape: list[int]
    min: float
    max: float
    mean: float


class MapAnswer(BlobAnswer):
    """A summary of a map with a class per pixel."""

    classes: list[Covered]


class ImageAnswer(TypedDict):
    """What the outputs say of an image."""

    file: str
    outputs: dict[str, ScoresAnswer | BoxesAnswer | MapAnswer | BlobAnswer]


class Step(TypedDict):
    """One step of a pass; see ``StepTime``."""

    name: str
    type: str
    engine: str
    ms: float
    macs: int
    bytes: int
    reads: list[str]
    writes: list[str]
    begin: float
    device_ms: float | None


class RowTimes(Spread):
    """Milliseconds of a row of the table of a pass."""

    name: str


class CustomTimes(TypedDict):
    """Milliseconds of a custom layer and of the conversions that it needs."""

    name: str
    unpack_ms: float
    custom_ms: float
    pack_ms: float


class ShareOfPass(TypedDict):
    """Steps of one kind together."""

    steps: int
    ms: float
    percent: float


class Perf(TypedDict):
    """Where the time of the passes went; see ``PerfInfo.to_json``."""

    steps: list[Step]
    wall_ms: float
    batch: int
    peak_bytes: int
    blob_bytes: int
    feed_ms: float
    between_ms: float
    passes: int
    ms_per_image: float
    images_per_second: float
    steps_ms: float
    total_ms: float
    wall: Spread
    rows: list[RowTimes]
    custom_layers: list[CustomTimes]
    shares: dict[str, ShareOfPass]


class CheckedLayer(TypedDict):
    """A layer in fixed point against float; without any error ``exact`` is true and ``sqnr_db`` null."""

    name: str
    type: str
    engine: str
    inside: str | None
    format: str | None
    sqnr_db: float | None
    exact: bool
    max_error: float | None
    saturated_percent: float | None
    seen: float | None
    channel: int | None
    not_finite: int


class TopAgreement(TypedDict):
    """Images of which an output has the same best class in float and in fixed point."""

    blob: str
    images: int
    top1: int
    top5: int | None
    share: float


class CheckedWay(TypedDict):
    """One way to run a custom layer against plain Python."""

    layer: str
    inputs: str
    way: str
    difference: float | None
    ms: float
    ok: bool
    note: str


class Recipe(TypedDict):
    """How formats and weights were chosen; see ``quantizer.recipe.Recipe``."""

    ranges: str
    weights: str
    rounding: str
    bias: str
    equalise: float | None


class Tried(TypedDict):
    """A recipe and its cost."""

    recipe: Recipe
    cost: float | None


class EvaluatedOutput(TypedDict):
    """The output that is evaluated."""

    blob: str
    kind: str
    logits: str | None
    decision: str | None
    classes: int | None


class Judged(TypedDict, total=False):
    """What known answers give: of scores, of boxes, of maps. Nothing where none is known."""

    top1: int
    top5: int
    map50: float | None
    pixel_accuracy: float | None
    mean_iou_truth: float | None


class Side(Judged, total=False):
    """A device against the reference: of scores, of boxes, of maps."""

    agree: int
    agreement: float
    agreement_95: list[float]
    kl: float | None
    logits_sqnr_db: float | None
    boxes: int
    expected: int
    matched: int
    precision: float | None
    recall: float | None
    pixel_agreement: float | None
    mean_iou: float | None


class EstimatedLayer(TypedDict):
    """One line of a CHaiDNN layer list."""

    line: int
    type: str
    engine: str
    reason: str | None
    input: list[int] | None
    output: list[int] | None
    macs: int
    cycles: int
    ms: float


class DemoImage(TypedDict):
    """A digit, what the network says it is, and how sure it is."""

    file: str
    truth: int
    says: int
    p: float


class LayerType(TypedDict):
    """A type of layer."""

    type: str
    kind: str
    parameters: str | None
    summary: str


class ListedDevice(TypedDict):
    """A device and whether it can be used here."""

    device: str
    usable: bool
    state: str
    summary: str


class ListedOverlay(TypedDict):
    """An overlay and the boards that it is for."""

    overlay: str
    part: str
    boards: list[str]
    title: str


class SelftestResult(TypedDict):
    """One test of a device; ``reason`` is empty where it passed."""

    name: str
    ok: bool
    reason: str
    ms: float
