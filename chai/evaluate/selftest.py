"""Check that a device computes bit for bit what the Tasks' definitions specify (``chai devices --test``).

It runs Tasks of every kind of the overlay (``probes`` of the kind) in each of its formats, then a whole network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from time import perf_counter

from .. import tasks
from ..blob import Array, codes_of
from ..codegen.compile import executable
from ..devices.base import Device, Program, Ran
from ..errors import ChaiError, DeviceError, UsageError
from ..net import Net
from ..overlay import Overlay
from ..runtime.execution import Execution
from ..tasks import Task
from ..tasks.probe import Maker, Probe
from ..tasks.work import Work
from ..util.lazy_numpy import np

NETWORK = "digits"
PASSES = 5
TIMES = 1000  # runs of a probe that is repeated


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe: ``reason`` is the failure, empty if it passed; ``ms`` is the device's time."""

    name: str
    ok: bool
    reason: str
    ms: float


class TaskProbe(Probe):
    """A Probe of a kind of Task, with the format in its name."""

    task: Task

    def run(self, device: Device, overlay: Overlay) -> str:
        """Return a description of the first error, or "". Raises the errors of the device."""
        with closing(self.compiled(device, overlay)) as program:
            return difference(self.output(program), self.expected)

    def compiled(self, device: Device, overlay: Overlay) -> Program:
        """Return the Task alone as a Program."""
        return device.compile(Work(overlay, [self.task], self.shapes, {}, self.task.inputs, (self.task.output,)))

    def output(self, program: Program) -> Array:
        """Run the Program once, and return what the Task has written."""
        blobs = {name: codes.copy() for name, codes in self.codes.items()}
        program.run(blobs)
        return self.task.written(blobs[self.task.output], self.shapes)

    @cached_property
    def expected(self) -> Array:
        """The output by the Task's definition."""
        return self.task.define(*(self.codes[b] for b in self.task.inputs))


@dataclass(frozen=True)
class NetworkProbe:
    """The shipped network in formats of one kind, conversions and layers of the host included."""

    name: str
    scheme: str
    bits: int

    def run(self, device: Device, overlay: Overlay) -> str:
        """Return a description of the first error, or "", as a TaskProbe does."""
        images = np.random.default_rng(self.bits).random((min(3, overlay.batch_max), 1, 8, 8)).astype(np.float32)
        net = Net(NETWORK, device="null", overlay=overlay.path, calibrate=images, bits=self.bits, scheme=self.scheme)
        planned = net.offload.plan
        tested, defined = (Execution(planned, on) for on in (device, _DEFINITIONS))
        try:
            outputs = [on.run({net.inputs[0]: images}, set(planned.graph.output_blobs))[0] for on in (tested, defined)]
        finally:
            tested.close()
        for blob, values in outputs[1].items():
            if wrong := difference(outputs[0][blob], values):
                return f"blob {planned.graph.caffe_name(blob)!r} {wrong}"
        return ""


def probes(overlay: Overlay) -> list[TaskProbe | NetworkProbe]:
    """Return the probes for an overlay, quick ones first."""
    formats = [(scheme, bits) for scheme in overlay.schemes for bits in overlay.bits]
    alone = [
        TaskProbe(f"{probe.name}, {bits} bit {scheme}", probe.task, probe.shapes, probe.codes)
        for scheme, bits in formats
        for cls in (tasks.find(kind, overlay.arithmetic) for kind in overlay.kinds)
        for probe in cls.probes(Maker(overlay, cls.limits(overlay), scheme, bits, cls.kind))
    ]
    whole = (NetworkProbe(f"network {NETWORK}, {bits} bit {scheme}", scheme, bits) for scheme, bits in formats)
    return [*alone, *whole]


def run(device: Device, overlay: Overlay) -> Iterator[ProbeResult]:
    """Yield the result of each probe; the next one runs after a failure too.

    Raises UsageError for a device that computes in float, and the device's own error if it cannot be used at all.
    """
    if not device.fixed:
        message = f"device {device.name} computes in float: there is no definition to compare it with"
        raise UsageError(message, hint="--device emulator, or pynq on a board")
    opened(device, overlay)
    for probe in probes(overlay):
        begin = perf_counter()
        reason = failure(probe, device, overlay)
        yield ProbeResult(probe.name, not reason, reason, (perf_counter() - begin) * 1000)


def failure(probe: TaskProbe | NetworkProbe, device: Device, overlay: Overlay) -> str:
    """Return a description of the first error of a probe, its own or the device's, or ""."""
    try:
        return probe.run(device, overlay)
    except ChaiError as error:
        return str(error)


def opened(device: Device, overlay: Overlay) -> None:
    """Open the device for an overlay. Raises its error if it is missing."""
    device.compile(Work(overlay, [], {})).close()


def checks(device: Device, overlay: Overlay) -> Iterator[ProbeResult]:
    """Yield what the device can say of itself after a run, apart from results."""
    begin = perf_counter()
    try:
        for name, reason in device.checks(overlay):
            yield ProbeResult(name, not reason, reason, (perf_counter() - begin) * 1000)
            begin = perf_counter()
    except DeviceError as error:
        yield ProbeResult("board", False, str(error), (perf_counter() - begin) * 1000)


def outcome(device: Device, overlay: Overlay, results: Sequence[ProbeResult]) -> Iterator[tuple[str, str]]:
    """Yield names and values for a report: which programs were right, and the time of one segment."""
    wrong = [result.name for result in results if not result.ok]
    yield "right", f"{len(results) - len(wrong)} of {len(results)} tests"
    if wrong:
        yield "wrong", "; ".join(wrong)
    try:
        measured, modelled = segment_ms(device, overlay)
        times = f"{measured:.3f} ms by the host's clock" + (f", {modelled:.3f} ms modelled" if modelled else "")
        yield "segment", f"network {NETWORK}: {times}"
    except ChaiError as error:
        yield "segment", str(error)


def segment_ms(device: Device, overlay: Overlay) -> tuple[float, float]:
    """Return the milliseconds of the shipped network's segment on a device, the median of some passes, and modelled, or 0."""
    images = np.zeros((1, 1, 8, 8), np.float32)
    with Net(NETWORK, device=device, overlay=overlay.path, calibrate=images + 1) as net:
        passes = []
        for _ in range(PASSES):
            net.forward(images)
            passes.append(sum(step.ms for step in net.perf.steps if step.engine == "fpga"))
        shapes, views = net.offload.plan.device_shapes, net.schedule.views
        segments = [step for step in net.schedule.segments if step.tasks]
        if overlay.emulated:
            return median(passes), 0.0
        cycles = sum(executable(step.work(overlay, shapes, views)).cycles for step in segments)
        return median(passes), cycles / (overlay.clock_mhz * 1000)


class Repeat:
    """Runs of a probe, compared: a clock that is too fast, or a bad supply, shows as runs that differ.

    How many were ``right``, the different ``wrong`` outputs with their numbers, the ``error``.
    """

    def __init__(self, probe: TaskProbe, times: int) -> None:
        self.probe = probe
        self.times = times
        self.right = 0
        self.wrong = Counter[bytes]()
        self.error: DeviceError | None = None

    def run(self, device: Device, overlay: Overlay) -> Iterator[None]:
        """Run it ``times`` times, or until the device's first error; yield after each run."""
        self._begin = perf_counter()
        try:
            with closing(self.probe.compiled(device, overlay)) as program:
                for _ in range(self.times):
                    codes = self.probe.output(program)
                    if np.array_equal(codes, self.probe.expected):
                        self.right += 1
                    else:
                        self.wrong[codes.tobytes()] += 1
                    yield
        except DeviceError as error:
            self.error = error

    @property
    def runs(self) -> int:
        """The number of runs that ended."""
        return self.right + self.wrong.total()

    @property
    def differ(self) -> bool:
        """True if two runs gave different outputs."""
        return len(self.wrong) + bool(self.right) > 1

    @property
    def outputs(self) -> list[Array]:
        """The wrong outputs."""
        expected = self.probe.expected
        return [np.frombuffer(codes, expected.dtype).reshape(expected.shape) for codes in self.wrong]

    @property
    def reason(self) -> str:
        """A description of what was wrong, "" if nothing was."""
        if self.error:
            return f"after {self.runs:,} runs: {self.error}"
        if not self.wrong:
            return ""
        ways = f"in {len(self.wrong):,} ways" if len(self.wrong) > 1 else "all alike"
        return (
            f"{self.runs - self.right:,} of {self.runs:,} runs are wrong, {ways}; "
            f"one is {difference(self.outputs[0], self.probe.expected)}"
        )

    @property
    def result(self) -> ProbeResult:
        """All runs as one test."""
        name = f"{self.probe.name}, {self.times:,} times"
        return ProbeResult(name, not self.reason, self.reason, (perf_counter() - self._begin) * 1000)


def repeated(overlay: Overlay) -> list[TaskProbe]:
    """Return the probes to repeat: the first Task of each engine."""
    first: dict[str, TaskProbe] = {}
    for probe in probes(overlay):
        if isinstance(probe, TaskProbe):
            first.setdefault(probe.task.engine, probe)
    return list(first.values())


def difference(actual: Array, expected: Array) -> str:
    """Return the position of the first wrong value and the number of wrong values as text; "" if all are right."""
    wrong = np.argwhere(actual != expected)
    if not len(wrong):
        return ""
    at = tuple(int(i) for i in wrong[0])
    return f"at {at}: expected {expected[at]}, found {actual[at]} ({len(wrong):,} of {expected.size:,} differ)"


# -- a device that runs the definitions


class _Definitions(Device):
    """Runs the Tasks' definitions: slow, and correct by definition."""

    fixed = True

    def compile(self, work: Work) -> Program:
        return _Defined(work)


@dataclass
class _Defined(Program):
    work: Work

    def run(self, blobs: dict[str, Array]) -> Ran:
        shapes, views = self.work.shapes, self.work.views
        for task in self.work.tasks:
            inputs = [codes_of(b, blobs, shapes, views) for b in task.inputs]
            whole = codes_of(task.output, blobs, shapes, views)
            task.written(whole, shapes)[...] = task.define(*inputs)
        return Ran()


_DEFINITIONS = _Definitions("definitions", "the Tasks' definitions")
