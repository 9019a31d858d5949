"""Schemas of ``--json``: a dataclass for each object that a command prints.

Types of its parts are in ``schema_parts``; ``schema_show`` is apart, so that ``chai show`` starts without the others.

``schema`` is name and version. Removing or renaming a key, or changing its meaning, needs a new version; adding one does
not. Every key is always present; its value is null if it is unknown or does not apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .schema import Schema

if TYPE_CHECKING:
    from .schema_parts import (
        BenchRun,
        BenchStart,
        CheckedLayer,
        CheckedWay,
        CoarserSteps,
        DemoImage,
        EstimatedLayer,
        EvaluatedOutput,
        Failure,
        ImageAnswer,
        Judged,
        LayerType,
        ListedDevice,
        ListedOverlay,
        MeasuredFormats,
        Perf,
        Recipe,
        SelftestResult,
        Side,
        Spread,
        TopAgreement,
        Tried,
    )

# -- run


@dataclass(frozen=True)
class Run(Schema):
    """Results of a network for images."""

    schema = "chai.run/2"
    network: str
    device: str
    preprocess: str
    ms_per_image: float | None
    images: list[ImageAnswer]
    failed: list[Failure]
    formats: MeasuredFormats | None
    perf: Perf | None


# -- check, quantize


@dataclass(frozen=True)
class Compared(Schema):
    """Comparison of float and fixed point, layer by layer."""

    network: str
    overlay: str
    formats: str
    calibrated: int
    images: int
    bound_db: float
    first_bad: str | None
    agreement: list[TopAgreement]
    coarser: dict[str, CoarserSteps]
    layers: list[CheckedLayer]
    preprocess: str
    failed: list[Failure]


@dataclass(frozen=True)
class Check(Compared):
    """Comparison of float and fixed point, with a verdict."""

    schema = "chai.check/1"
    agreement_goal: float
    ok: bool


@dataclass(frozen=True)
class CheckCustom(Schema):
    """Comparison of custom layers, in every way they can run, with plain Python."""

    schema = "chai.check.custom/1"
    network: str
    type: str
    ok: bool
    rows: list[CheckedWay]


@dataclass(frozen=True)
class Quantize(Compared):
    """A quantised network: its recipe, and its error against float."""

    schema = "chai.quantize/2"
    bits: int | list[int] | str
    budget: float | None
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
    widened: dict[str, float]
    on_host_because: dict[str, str]
    seconds: float
    seconds_float: float
    prototxt: str
    caffemodel: str
    below_bound: list[str]


# -- evaluate


@dataclass(frozen=True)
class Evaluate(Schema):
    """Comparison of devices over many images."""

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


@dataclass(frozen=True)
class Estimate(Schema):
    """Time estimates for a CHaiDNN layer list, from the cycle model of an overlay."""

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
    """Benchmark of a network: ``runs`` has one part per batch and number of threads, ``start`` figures of processes.

    ``load`` is the machine's load before all, ``kernels`` the instructions that chai used, ``versions`` are the peers'.
    """

    schema = "chai.bench/4"
    network: str
    inputs: dict[str, list[int]]
    random_weights: bool
    device: str
    overlay: str | None
    kernels: str
    processor: str
    versions: dict[str, str]
    rounds: int
    load: float
    runs: list[BenchRun]
    start: dict[str, BenchStart] | None


@dataclass(frozen=True)
class Demo(Schema):
    """Results of the embedded network on the held-back digits."""

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


@dataclass(frozen=True)
class Layers(Schema):
    """All layer types."""

    schema = "chai.layers/1"
    layers: list[LayerType]


@dataclass(frozen=True)
class Devices(Schema):
    """Devices and overlays that networks can run on."""

    schema = "chai.devices/1"
    devices: list[ListedDevice]
    overlays: list[ListedOverlay]
    custom_layers: str


@dataclass(frozen=True)
class Selftest(Schema):
    """Comparison of a device with the definitions of Tasks."""

    schema = "chai.selftest/1"
    device: str
    overlay: str
    build: str
    tests: list[SelftestResult]
    failed: int
    ok: bool
