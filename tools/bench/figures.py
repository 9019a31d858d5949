"""What ``python -m tools.bench`` measures beside chai bench: the processor's peak, chai's share of it, and the operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from chai.cli.bench import Bench, BenchRun
from chai.errors import UsageError

from . import peak, roofline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chai.blob import Shape
    from chai.cli.bench_measure import After
    from chai.net import Net
    from chai.runtime.perf import PerfInfo

OPEN: dict[str, Any] = dict.fromkeys(("peak", "share", "operations"))  # what was not measured
HERE = ("emulator", "float")  # devices that are this computer's processor


class Peak(TypedDict):
    """Limits of the processor: 10^9 products per second of all threads, 10^9 bytes read and written per second of one."""

    instructions: str
    products: float
    bytes: dict[str, float]


class PeakRun(BenchRun):
    """Figures of one batch and number of threads; ``share`` is chai's of the peak: of the whole pass, and of its convolutions."""

    peak: Peak | None
    share: dict[str, float] | None
    operations: list[roofline.Operation] | None


@dataclass(frozen=True)
class Figures(Bench):
    """What ``--json`` prints and a history keeps."""

    schema = "chai.tools.bench/2"
    runs: list[PeakRun]  # type: ignore[assignment]  # with more keys


def of_the_peak(net: Net, threads: int, needed: bool) -> After:
    """Measure the peak, and return a function that compares the passes with it.

    Without a C compiler there is a note and no figure, unless it is ``needed``: then UsageError is raised. It is raised as
    well if the device is not this computer's processor.
    """
    if net.device.name not in HERE:
        raise UsageError(f"the peak is of this computer's processor, not of device {net.device.name}")
    try:
        roof = peak.roof(net.overlay is not None)
    except UsageError as error:
        if needed:
            raise
        reason = f"no peak: {error.message}"
        return lambda *_: (OPEN, [reason])
    products = roof.products * threads

    def finish(
        passes: Sequence[PerfInfo], shapes: Mapping[str, Shape], least: float
    ) -> tuple[dict[str, Any], list[str]]:
        operations = roofline.operations(passes, net.graph, shapes)
        return {
            "peak": {**roof._asdict(), "products": products},
            "share": roofline.shares(passes, least, products),
            "operations": [vars(operation) for operation in operations],
        }, []

    return finish
