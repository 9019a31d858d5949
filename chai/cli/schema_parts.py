"""Types for the parts of the objects in ``schemas``; values are printed unchanged."""

from __future__ import annotations

from typing import TypedDict


class Failure(TypedDict):
    """Input that could not be read or run."""

    file: str
    error: str


class Spread(TypedDict):
    """Milliseconds of several passes."""

    median: float
    min: float
    p90: float


class Times(TypedDict):
    """Milliseconds, or times as multiples of others."""

    median: float
    min: float


class BenchRun(TypedDict):
    """Figures of one batch and number of threads.

    ``spin`` is how much more work the threads do than one, ``measurable`` whether its ``min`` is 0.9 of their number.
    ``ratio`` is each peer's time divided by chai's, ``difference`` the largest one of the outputs, ``noise`` the relative
    difference of the two halves of the run.
    """

    batch: int
    threads: int
    spin: Times | None
    measurable: bool
    load: float
    noise: float
    ms_per_image: dict[str, Spread]
    ratio: dict[str, Times]
    difference: dict[str, float]


class BenchStart(TypedDict):
    """Milliseconds of processes from start to the first result; peak memory in MB of one with 100 more.

    ``cpu_ms`` is the median of those 100 passes' CPU time, ``slowest`` the largest as a multiple of it. All three are null
    if that process failed.
    """

    wall: Times
    cpu: Times
    mb: float | None
    cpu_ms: float | None
    slowest: float | None


class SegmentCost(TypedDict):
    """Times of a segment on the overlay, and of its layers on the host."""

    layers: list[str]
    fpga_ms: float
    host_ms: float


class CoarserSteps(TypedDict):
    """Channels of a layer with coarser weight steps, and the dB that this costs its weights in SQNR."""

    channels: int
    decibels: float


class Activations(TypedDict):
    """Bytes of activations on the device; ``total`` is the sum over all blobs, without shared memory."""

    peak: int
    total: int


class Best(TypedDict):
    """One of the top classes of an image."""

    index: int
    label: str
    score: float


class FoundBox(TypedDict):
    """Detected box: left, top, right and bottom, as fractions of the network's input and in pixels of the image.

    ``pixels`` of a .npy are those of the input.
    """

    label: int
    name: str
    score: float
    box: list[float]
    pixels: list[float]


class Covered(TypedDict):
    """Class in a map, and the fraction of pixels that have it."""

    index: int
    label: str
    share: float


class ScoresAnswer(TypedDict):
    """Class scores of an image in one output."""

    top: list[Best]
    probabilities: bool


class BoxesAnswer(TypedDict):
    """Detected boxes of an image in one output, and the number of boxes that are not listed.

    ``units`` are those of a box's corners, in words.
    """

    units: dict[str, str]
    boxes: list[FoundBox]
    more: int
    below_threshold: int


class BlobAnswer(TypedDict):
    """Summary of any other output."""

    shape: list[int]
    min: float
    max: float
    mean: float


class MapAnswer(BlobAnswer):
    """Summary of a map with a class per pixel."""

    classes: list[Covered]


class ImageAnswer(TypedDict):
    """Results of all outputs for an image."""

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
    layers: list[str]


class RowTimes(Spread):
    """Milliseconds of one row in the table of a pass."""

    name: str


class CustomTimes(TypedDict):
    """Milliseconds of a custom or composed layer and of its conversions; ``parts`` are steps of a composed one."""

    name: str
    unpack_ms: float
    custom_ms: float
    pack_ms: float
    parts: list[str]


class ShareOfPass(TypedDict):
    """Share of all steps of one kind in a pass."""

    steps: int
    ms: float
    percent: float


class MeasuredFormats(TypedDict):
    """Basis of measured formats, and how many of the codes at the overlay's borders are saturated."""

    images: int
    margin: float
    bits: int
    scheme: str
    converted: int
    saturated: int
    cure: str | None


class Perf(TypedDict):
    """Times of the passes; see ``PerfInfo.to_json``."""

    steps: list[Step]
    wall_ms: float
    batch: int
    peak_bytes: int
    blob_bytes: int
    feed_ms: float
    between_ms: float
    converted: int
    saturated: int
    emulated: str | None
    modelled_images_per_second: float | None
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
    """Error of a layer in fixed point against float; without any error ``exact`` is true and ``sqnr_db`` null."""

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
    """Number of images with the same top class of an output in float and in fixed point."""

    blob: str
    images: int
    top1: int
    top5: int | None
    share: float


class CheckedWay(TypedDict):
    """Comparison of one way to run a custom layer with plain Python."""

    layer: str
    inputs: str
    way: str
    difference: float | None
    ms: float
    ok: bool
    note: str


class Recipe(TypedDict):
    """Choices for formats and weights; see ``quantizer.recipe.Recipe``."""

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
    """Accuracy of scores, boxes or maps against ground truth; empty without it."""

    top1: int
    top5: int
    map50: float | None
    pixel_accuracy: float | None
    mean_iou_truth: float | None


class Side(Judged, total=False):
    """Comparison of a device with the reference: for scores, boxes or maps."""

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
    """A digit, the network's answer, and its probability."""

    file: str
    truth: int
    says: int
    p: float


class LayerType(TypedDict):
    """A layer type."""

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
    """An overlay and its boards."""

    overlay: str
    part: str
    boards: list[str]
    title: str


class SelftestResult(TypedDict):
    """One test of a device; ``reason`` is empty if it passed."""

    name: str
    ok: bool
    reason: str
    ms: float
