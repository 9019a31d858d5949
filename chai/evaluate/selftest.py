"""selftest: whether a device computes what the Tasks' definitions say, to the bit.

One Task of every kind that an overlay has, in every format it knows, then a whole network. Sizes are odd, so that no
plane, tile or batch is full; codes reach both ends of their range. Everything is drawn from fixed seeds: the same board
fails in the same place again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..codegen.chain import codes_of
from ..devices.base import Device, Program, Ran, Work
from ..errors import ChaiError, UsageError
from ..fixed import Format, quantize_bias, quantize_weights, weight_steps
from ..tasks.target import Target, fraction
from ..tasks.window import Window
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..overlay import ConvLimits, Overlay, PoolLimits
    from ..tasks import Task

SIZE = 11, 13  # of every image: height and width
SLOPE = 0.1  # of leaky ReLUs
NETWORK = "digits"


@dataclass(frozen=True)
class Result:
    """``reason`` says what was wrong, and is empty where nothing was; ``ms`` is what the device took."""

    name: str
    reason: str
    ms: float

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return not self.reason


@dataclass(frozen=True)
class Probe:
    """A Task to be run on its own: ``shapes`` of its blobs, ``codes`` of those it reads."""

    name: str
    task: Task
    shapes: Mapping[str, Shape]
    codes: Mapping[str, Array]

    def run(self, device: Device, overlay: Overlay) -> str:
        """What the device gets wrong, or nothing. Raises what the device raises."""
        program = device.compile(Work(overlay, [self.task], self.shapes, {}, self.task.inputs, (self.task.output,)))
        blobs = {name: codes.copy() for name, codes in self.codes.items()}
        try:
            program.run(blobs)
        finally:
            program.close()
        wanted = self.task.define(*(self.codes[b] for b in self.task.inputs))
        return difference(self.task.written(blobs[self.task.output], wanted.shape[1]), wanted)


@dataclass(frozen=True)
class NetworkProbe:
    """The shipped network in formats of one kind, conversions and layers of the host included."""

    name: str
    scheme: str
    bits: int

    def run(self, device: Device, overlay: Overlay) -> str:
        """As a Probe's."""
        from ..net import Net
        from ..runtime.execution import Execution

        images = np.random.default_rng(self.bits).random((min(3, overlay.batch_max), 1, 8, 8)).astype(np.float32)
        net = Net(NETWORK, device="null", overlay=overlay.path, calibrate=images, bits=self.bits, scheme=self.scheme)
        planned = net.offload
        found, wanted = (
            Execution(planned.graph, planned.shapes, overlay, on, planned.schedule, planned.formats)
            for on in (device, _DEFINITIONS)
        )
        try:
            outputs = [on.run({net.inputs[0]: images}, set(planned.graph.output_blobs))[0] for on in (found, wanted)]
        finally:
            found.close()
        for blob, values in outputs[1].items():
            if wrong := difference(outputs[0][blob], values):
                return f"blob {planned.graph.caffe_name(blob)!r} {wrong}"
        return ""


def probes(overlay: Overlay) -> list[Probe | NetworkProbe]:
    """What there is to be tested on an overlay, quick things first."""
    found: list[Probe | NetworkProbe] = []
    formats = [(scheme, bits) for scheme in overlay.schemes for bits in overlay.bits]
    for scheme, bits in formats:
        maker = _Maker(overlay, scheme, bits)
        kinds = maker.convs(), maker.affine(), maker.pools(), maker.eltwise(), maker.copy()
        found += [replace(p, name=f"{p.name}, {bits} bit {scheme}") for kind in kinds for p in kind]
    return found + [NetworkProbe(f"network {NETWORK}, {bits} bit {scheme}", scheme, bits) for scheme, bits in formats]


def run(device: Device, overlay: Overlay) -> Iterator[Result]:
    """Every probe in turn; a failure does not keep the next from being tried.

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
    """Where the first value that is not as wanted stands, and how many there are; nothing if all are."""
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
        shapes, places = self.work.shapes, self.work.places
        for task in self.work.tasks:
            given = [codes_of(b, blobs, shapes, places) for b in task.inputs]
            whole = codes_of(task.output, blobs, shapes, places)
            task.written(whole, shapes[task.inputs[0]][1])[...] = task.define(*given)
        return Ran()


_DEFINITIONS = _Definitions("definitions", "the Tasks' definitions")


# -- Tasks of every kind


@dataclass
class _Maker:
    """Tasks in formats of one kind, their numbers made as a network's are."""

    overlay: Overlay
    scheme: str
    bits: int
    random: Any = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.bits + len(self.scheme))
        self.batch = min(3, self.overlay.batch_max)
        self.step = self.overlay.layout.channels_per_word

    def convs(self) -> Iterator[Probe]:
        """Plain, dilated, grouped, depthwise and leaky, as far as the overlay goes."""
        limits = self.overlay.tasks.conv
        inputs, outputs = self.step + 3, 2 * self.step + 5
        plain = _window(limits, 3, 2, 1)
        yield self._conv("conv", inputs, outputs, plain, slope=0)
        yield self._conv("conv 1x1", inputs, outputs, _window(limits, 1, 1, 0), slope=None)
        if limits.dilation_max > 1:
            yield self._conv("conv dilated", inputs, outputs, _window(limits, 3, 1, 2, 2), slope=None)
        if limits.group_max > 1:
            yield self._conv("conv grouped", 2 * self.step, 4 * self.step, plain, group=2, slope=0)
        if limits.depthwise:
            yield self._conv("conv depthwise", inputs, inputs, plain, group=inputs, slope=0)
        if limits.leaky:
            yield self._conv("conv leaky", inputs, outputs, plain, slope=SLOPE)

    def affine(self) -> Iterator[Probe]:
        """One multiplication and one addition per element."""
        if self.overlay.tasks.affine:
            channels = self.step + 3
            yield self._conv(
                "affine", channels, channels, Window((1, 1), (1, 1), (0, 0)), group=channels, kind="affine"
            )

    def pools(self) -> Iterator[Probe]:
        """Every method; Caffe's windows reach over the right and lower edge."""
        from ..kernels import pooling
        from ..tasks.pool import Pool

        limits = self.overlay.tasks.pool
        for method in limits.methods if limits else ():
            assert limits is not None
            window = _window(limits, 3, 2, 1)
            out = tuple((n + 2 * p - k + s - 1) // s + 1 for n, k, s, p in zip(SIZE, *window[:3]))
            shape = self.batch, self.step + 3, *SIZE
            (top, left), (height, width) = window.pad, SIZE
            areas = pooling.areas(window, (out[0], out[1]), (-top, -left), (height + top, width + left))
            target = self._target({"x": shape, "y": (*shape[:2], *out)}, largest=0.6)
            r = (
                None
                if method == "MAX"
                else target.requantization(target.formats["x"].step / areas.astype(np.float64), "y", None)
            )
            yield self._probe(f"pool {method}", Pool(("x",), "y", ("pool",), window, (out[0], out[1]), r), target)

    def eltwise(self) -> Iterator[Probe]:
        """A weighted sum, with a leaky ReLU where there is one."""
        from ..fixed import Requantization
        from ..tasks.eltwise import Eltwise

        limits = self.overlay.tasks.eltwise
        if not limits:
            return
        shape = self.batch, self.step + 3, *SIZE
        names = tuple(f"x{i}" for i in range(limits.inputs))
        target = self._target(dict.fromkeys((*names, "y"), shape), largest=1.3)
        steps = np.array([(1 - 1.7 * i) * target.formats[name].step for i, name in enumerate(names)])
        for slope in (None, SLOPE) if limits.leaky else (None,):
            r = target.requantization(steps, "y", slope)
            negative = None if r.negative is None else tuple(map(int, r.negative))
            one = Requantization(np.array(1), r.shift, r.low, r.high)
            task = Eltwise(names, "y", ("eltwise",), tuple(map(int, r.multiplier)), negative, one)
            yield self._probe("eltwise leaky" if slope else "eltwise", task, target)

    def copy(self) -> Iterator[Probe]:
        """Into the middle of a larger blob, as it is and rescaled."""
        from ..tasks.copy import Copy

        limits = self.overlay.tasks.copy
        if not limits:
            return
        shape = self.batch, self.step + 3, *SIZE
        whole = self.batch, limits.channel_step + shape[1] + 5, *SIZE
        target = self._target({"x": shape, "y": whole}, largest=0.6)
        r = target.requantization(np.array(target.formats["x"].step), "y", None)
        yield self._probe("copy", Copy(("x",), "y", ("copy",), limits.channel_step, None), target)
        yield self._probe("copy rescaled", Copy(("x",), "y", ("copy",), limits.channel_step, r), target)

    def _conv(
        self,
        name: str,
        inputs: int,
        outputs: int,
        window: Window,
        group: int = 1,
        slope: float | None = None,
        kind: str = "conv",
    ) -> Probe:
        from ..tasks.conv import Affine, Conv

        weights = self.random.standard_normal((outputs, inputs // group, *window.kernel)).astype(np.float32)
        weights *= 1.99 / np.abs(weights).max()  # a power of two, almost: the largest code in either scheme
        shapes = {"x": (self.batch, inputs, *SIZE), "y": (self.batch, outputs, *window.sizes(SIZE))}
        target = self._target(shapes, largest=0.7 * float(weights[0].size) ** 0.5)
        steps = weight_steps(weights, self._format(float(np.abs(weights).max())), None, target.formats["x"].step)
        codes = quantize_weights(weights, steps, self.bits)
        steps = steps * target.formats["x"].step
        bias = quantize_bias(self.random.standard_normal(outputs), steps)
        r = target.requantization(steps.reshape(-1, 1, 1), "y", slope)
        made = (Affine if kind == "affine" else Conv)(("x",), "y", (kind,), codes, bias, window, group, r)
        return self._probe(name, made, target)

    def _target(self, shapes: Mapping[str, Shape], largest: float) -> Target:
        """Inputs reach 1, the output ``largest``."""
        formats = {name: self._format(largest if name == "y" else 1.0) for name in shapes}
        return Target(self.overlay, formats, shapes)

    def _format(self, largest: float) -> Format:
        value = largest if self.scheme == "Xilinx" else fraction(self.bits, np.array(largest))
        return Format(self.scheme, self.bits, value)

    def _probe(self, name: str, task: Task, target: Target) -> Probe:
        codes = {}
        for blob in task.inputs:
            low, high = target.formats[blob].range
            codes[blob] = self.random.integers(low, high + 1, target.shapes[blob]).astype(np.int8)
        return Probe(name, task, target.shapes, codes)


def _window(limits: ConvLimits | PoolLimits, kernel: int, stride: int, pad: int, dilation: int = 1) -> Window:
    """As near to that as the overlay goes."""
    kernel, stride, pad = min(kernel, limits.kernel_max), min(stride, limits.stride_max), min(pad, limits.pad_max)
    return Window((kernel, kernel), (stride, stride), (pad, pad), (dilation, dilation))
