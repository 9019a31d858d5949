"""Schemas of ``--json``: a dataclass for each object that a command prints, and types for the parts of it.

``schema`` names the schema and its version. A key that is removed or renamed, or whose meaning changes, needs the next
version; a key may be added. Every key is always there; null is what is not known or does not apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypedDict

if TYPE_CHECKING:
    from ..report.layer_rows import LayerRow


@dataclass(frozen=True)
class Schema:
    """Base of the objects that ``output.as_json`` prints."""

    schema: ClassVar[str]


class Failure(TypedDict):
    """An input that could not be read or run."""

    file: str
    error: str


class Spread(TypedDict):
    """Milliseconds of several passes."""

    median: float
    min: float
    p90: float


# -- show


class SegmentCost(TypedDict):
    """A segment on the overlay, and what its layers would take on the host."""

    layers: list[str]
    fpga_ms: float
    host_ms: float


class Activations(TypedDict):
    """Bytes of activations on the device; ``total`` if no two blobs shared any."""

    peak: int
    total: int


@dataclass(frozen=True)
class Show(Schema):
    """A network: a prototxt, a prototxt planned for an overlay, or a compiled network.

    ``overlay`` and all keys after it are null without an overlay; ``batch`` is that of the plan.
    """

    schema = "chai.show/2"
    network: str
    file: str
    compiled: bool
    weights: bool
    inputs: dict[str, list[int] | None]
    outputs: list[str]
    notes: list[str]
    layers: list[LayerRow]
    preprocess: str | None = None
    labels: int | None = None
    overlay: str | None = None
    build: str | None = None
    batch: int | None = None
    formats: str | None = None
    open_sums: list[str] | None = None
    conversions: list[str] | None = None
    merged: list[list[str]] | None = None
    tasks: int | None = None
    segments: int | None = None
    cycles: int | None = None
    modelled_fps: float | None = None
    costs: list[SegmentCost] | None = None
    activation_bytes: Activations | None = None
    constant_bytes: int | None = None


# -- run


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


@dataclass(frozen=True)
class Run(Schema):
    """Answers of a network for images."""

    schema = "chai.run/2"
    network: str
    device: str
    preprocess: str
    ms_per_image: float | None
    images: list[ImageAnswer]
    failed: list[Failure]
    perf: Perf | None


# -- check, quantize


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


@dataclass(frozen=True)
class Compared(Schema):
    """Float against fixed point, layer by layer."""

    network: str
    overlay: str
    formats: str
    calibrated: int
    images: int
    bound_db: float
    first_bad: str | None
    agreement: list[TopAgreement]
    layers: list[CheckedLayer]
    preprocess: str
    failed: list[Failure]


@dataclass(frozen=True)
class Check(Compared):
    """The comparison and its verdict."""

    schema = "chai.check/1"
    agreement_goal: float
    ok: bool


class CheckedWay(TypedDict):
    """One way to run a custom layer against plain Python."""

    layer: str
    inputs: str
    way: str
    difference: float | None
    ms: float
    ok: bool
    note: str


@dataclass(frozen=True)
class CheckCustom(Schema):
    """A network's custom layers of some types, every way they can run."""

    schema = "chai.check.custom/1"
    network: str
    type: str
    ok: bool
    rows: list[CheckedWay]


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


@dataclass(frozen=True)
class Quantize(Compared):
    """A quantised network: how it was found, and what it lost."""

    schema = "chai.quantize/1"
    bits: int
    scheme: str
    effort: str
    seed: int
    judged: int
    recipe: Recipe
    cost: float | None
    cost_of_plain_maxima: float | None
    tried: list[Tried]
    methods: dict[str, str]
    cost_alone: dict[str, float | None]
    on_host_because: dict[str, str]
    seconds: float
    seconds_float: float
    prototxt: str
    caffemodel: str
    below_bound: list[str]


# -- evaluate


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


@dataclass(frozen=True)
class Evaluate(Schema):
    """Devices side by side over many images."""

    schema = "chai.evaluate/3"
    network: str
    output: EvaluatedOutput
    images: int
    known: int
    threshold: float | None
    reference: str
    float: Judged | None
    devices: dict[str, Side]
    preprocess: str
    failed: list[Failure]


# -- estimate, bench, demo


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


@dataclass(frozen=True)
class Estimate(Schema):
    """A CHaiDNN layer list, timed by the model of an overlay."""

    schema = "chai.estimate/1"
    file: str
    overlay: str
    clock_mhz: float
    assumed: list[str]
    layers: list[EstimatedLayer]
    cycles: int
    ms: float


@dataclass(frozen=True)
class Bench(Schema):
    """Times of a network; ``ratio`` and ``difference`` against the peer, if there is one."""

    schema = "chai.bench/1"
    network: str
    device: str
    batch: int
    threads: int
    rounds: int
    ms_per_image: dict[str, Spread]
    ratio: float | None
    difference: float | None


class DemoImage(TypedDict):
    """A digit, what the network says it is, and how sure it is."""

    file: str
    truth: int
    says: int
    p: float


@dataclass(frozen=True)
class Demo(Schema):
    """The embedded network on the held-back digits."""

    schema = "chai.demo/1"
    network: str
    device: str
    right: int
    right_in_float: int
    total: int
    ms: Spread
    picture: str
    images: list[DemoImage]


# -- layers, devices


class LayerType(TypedDict):
    """A type of layer."""

    type: str
    kind: str
    parameters: str | None
    summary: str


@dataclass(frozen=True)
class Layers(Schema):
    """Every type of layer."""

    schema = "chai.layers/1"
    layers: list[LayerType]


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


@dataclass(frozen=True)
class Devices(Schema):
    """What networks can run on."""

    schema = "chai.devices/1"
    devices: list[ListedDevice]
    overlays: list[ListedOverlay]
    custom_layers: str


class SelftestResult(TypedDict):
    """One test of a device; ``reason`` is empty where it passed."""

    name: str
    ok: bool
    reason: str
    ms: float


@dataclass(frozen=True)
class Selftest(Schema):
    """Tests of a device against the definitions of Tasks."""

    schema = "chai.selftest/1"
    device: str
    overlay: str
    build: str
    tests: list[SelftestResult]
    failed: int
    ok: bool
