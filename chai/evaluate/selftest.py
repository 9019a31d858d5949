"""selftest: check that a device computes what the Tasks' definitions say, to the bit.

Tasks of every kind that an overlay has (``probes`` of the kind), in every format it knows, then a whole network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from .. import tasks
from ..codegen.chain import codes_of
from ..devices.base import Device, Program, Ran, Work
from ..errors import ChaiError, UsageError
from ..net import Net
from ..runtime.execution import Execution
from ..tasks import Task
from ..tasks.probe import Maker, Probe
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array
    from ..overlay import Overlay

NETWORK = "digits"


@dataclass(frozen=True)
class Result:
    """``reason`` says what was wrong, and is empty where nothing was; ``ms`` is what the device took."""

    name: str
    reason: str
    ms: float

    @property
    def ok(self) -> bool:
        """Return whether it passed."""
        return not self.reason


class TaskProbe(Probe[Task]):
    """A Probe of a kind of Task, with the format in its name."""

    def run(self, device: Device, overlay: Overlay) -> str:
        """Return what the device gets wrong, or nothing. Raises what the device raises."""
        program = device.compile(Work(overlay, [self.task], self.shapes, {}, self.task.inputs, (self.task.output,)))
        blobs = {name: codes.copy() for name, codes in self.codes.items()}
        try:
            program.run(blobs)
        finally:
            program.close()
        expected = self.task.define(*(self.codes[b] for b in self.task.inputs))
        return difference(self.task.written(blobs[self.task.output], expected.shape[1]), expected)


@dataclass(frozen=True)
class NetworkProbe:
    """The shipped network in formats of one kind, conversions and layers of the host included."""

    name: str
    scheme: str
    bits: int

    def run(self, device: Device, overlay: Overlay) -> str:
        """Return what the device gets wrong, as a TaskProbe does."""

        images = np.random.default_rng(self.bits).random((min(3, overlay.batch_max), 1, 8, 8)).astype(np.float32)
        net = Net(NETWORK, device="null", overlay=overlay.path, calibrate=images, bits=self.bits, scheme=self.scheme)
        planned = net.offload.plan
        found, wanted = (Execution(planned, on) for on in (device, _DEFINITIONS))
        try:
            outputs = [on.run({net.inputs[0]: images}, set(planned.graph.output_blobs))[0] for on in (found, wanted)]
        finally:
            found.close()
        for blob, values in outputs[1].items():
            if wrong := difference(outputs[0][blob], values):
                return f"blob {planned.graph.caffe_name(blob)!r} {wrong}"
        return ""


def probes(overlay: Overlay) -> list[TaskProbe | NetworkProbe]:
    """Return what there is to be tested on an overlay, quick things first."""
    formats = [(scheme, bits) for scheme in overlay.schemes for bits in overlay.bits]
    alone = [
        TaskProbe(f"{probe.name}, {bits} bit {scheme}", probe.task, probe.shapes, probe.codes)
        for scheme, bits in formats
        for kind in overlay.kinds
        for probe in tasks.find(kind).probes(Maker(overlay, scheme, bits, kind))
    ]
    return [
        *alone,
        *(NetworkProbe(f"network {NETWORK}, {bits} bit {scheme}", scheme, bits) for scheme, bits in formats),
    ]


def run(device: Device, overlay: Overlay) -> Iterator[Result]:
    """Yield every probe in turn; a failure does not keep the next from being tried.

    Raises UsageError for a device that computes in float, and what the device raises if it cannot be used at all.
    """
    if not device.fixed:
        raise UsageError(
            f"device {device.name} computes in float: there is no definition to compare it with",
            hint="--device emulator, or pynq on a board",
        )
    device.compile(Work(overlay, [], {})).close()  # whether it is there
    for probe in probes(overlay):
        begin = perf_counter()
        try:
            reason = probe.run(device, overlay)
        except ChaiError as error:
            reason = str(error)
        yield Result(probe.name, reason, (perf_counter() - begin) * 1000)


def difference(found: Array, wanted: Array) -> str:
    """Return where the first value that is not as wanted stands, and how many there are; nothing if all are."""
    wrong = np.argwhere(found != wanted)
    if not len(wrong):
        return ""
    at = tuple(int(i) for i in wrong[0])
    return f"at {at}: expected {wanted[at]}, found {found[at]} ({len(wrong):,} of {wanted.size:,} differ)"


# -- the definitions, as a device


class _Definitions(Device):
    """Slow, and right by definition."""

    fixed = True

    def compile(self, work: Work) -> Program:
        return _Defined(work)


@dataclass
class _Defined(Program):
    work: Work

    def run(self, blobs: dict[str, Array]) -> Ran:
        shapes, views = self.work.shapes, self.work.views
        for task in self.work.tasks:
            given = [codes_of(b, blobs, shapes, views) for b in task.inputs]
            whole = codes_of(task.output, blobs, shapes, views)
            task.written(whole, shapes[task.inputs[0]][1])[...] = task.define(*given)
        return Ran()


_DEFINITIONS = _Definitions("definitions", "the Tasks' definitions")
