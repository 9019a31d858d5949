"""CompiledNet: what ``chai.Net("NET.chai")`` is, a network that was compiled for an overlay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import devices
from ..blob import Shape, show
from ..env import env
from ..errors import DeviceError, UsageError
from ..net import Net
from ..overlay import load as load_overlay
from ..plugins import CustomLayer, registry
from ..plugins.loading import load_named
from ..runtime.execution import Execution
from ..runtime.perf import PerfInfo, joined
from ..util.lazy_numpy import np
from .container import read
from .load import load, overlay_of

if TYPE_CHECKING:
    from ..blob import Array


class CompiledNet(Net):
    """A Net whose partition, formats, weights and sizes are fixed; no prototxt and no caffemodel is read.

    Batches of another size than it was compiled for are cut or filled up with copies of their last image, and the
    results joined; ``net.batch`` is the size that wastes nothing.
    """

    def __init__(
        self,
        path: str | Path,
        caffemodel: str | Path | None = None,
        device: str | None = None,
        *,
        overlay: str | Path | None = None,
        custom: Mapping[str, Callable[..., Any]] | None = None,
        keep: str | Sequence[str] = "outputs",
        autotune: bool = False,
        strict: bool = False,
        jit: bool = True,
        **fixed: Any,
    ) -> None:
        given = [name for name, value in fixed.items() if value not in _NOTHING.get(name, (None,))]
        if caffemodel is not None or given:
            raise UsageError(
                f"{path} is compiled: {'a caffemodel' if caffemodel is not None else given[0]} cannot be given any more",
                hint="give it to chai compile, or load the prototxt",
            )
        self.device = devices.open(device or env().device or devices.DEFAULT)
        if not self.device.fixed:
            raise DeviceError(
                f"{path} holds an overlay's Tasks in fixed point, device {self.device.name} computes in float32",
                hint="--device emulator, or load the prototxt and caffemodel",
            )
        if env().custom:
            load_named()
        artifact = read(path)
        self.overlay = load_overlay(overlay if overlay is not None else overlay_of(artifact))
        made = load(artifact, self.overlay, registry.Registry(custom, registry.REGISTRY, strict))
        self.graph, self.card = made.graph, made.card
        for layer in self.graph.layers:
            if isinstance(layer, CustomLayer):
                layer.autotune, layer.jit = autotune, jit
        self.formats = made.formats
        self.weights = None
        self.perf = PerfInfo()
        self._shapes = made.shapes
        self._values: dict[str, Array] = {}
        self._keep = self._kept(keep)
        self._execution = Execution(made.graph, made.shapes, self.overlay, self.device, made.schedule, made.formats)
        for layer in self.graph.layers:
            if not layer.source and not layer.on_device:
                self._prepare(layer, self._shapes)

    @property
    def batch(self) -> int:
        """Images per pass that it was compiled for."""
        return next((self._shapes[b][0] for b in self.graph.inputs if self._shapes[b]), 1)

    @property
    def trained(self) -> bool:
        """Always: it is compiled from a network with weights."""
        return True

    @property
    def offload(self) -> Execution:  # type: ignore[override]
        """Schedule and Programs."""
        return self._execution

    @property
    def params(self) -> dict[str, list[Array]]:
        """Not there: weights are packed for the overlay. Raises UsageError."""
        raise UsageError(f"{self.name} is compiled: its parameters cannot be changed", hint="load the prototxt")

    def calibrate(self, *data: Any, **inputs: Any) -> None:
        """Not possible any more. Raises UsageError."""
        raise UsageError(
            f"{self.name} is compiled: its formats are fixed", hint="chai compile ... --calibration FOLDER"
        )

    def plan(self) -> None:
        """Nothing to do: it is planned."""

    def close(self) -> None:
        """Let go of blobs and what a device holds; with the last network on it, of the device too. A pass after that
        takes it anew."""
        self._values = {}
        self._execution.close()
        self.device.leave()

    def reshape(self, **inputs: Shape) -> None:
        """Check sizes: all but the batch have to be those it was compiled for."""
        for name, shape in inputs.items():
            wanted = self._shapes[self._input(name)]
            if tuple(shape[1:]) != wanted[1:] or len(shape) != len(wanted) or not shape[:1] > (0,):
                raise UsageError(
                    f"input {name!r} of {show(tuple(shape))}: {self.name} was compiled for {show(wanted)}",
                    hint="any batch will do; for other sizes compile it again",
                )

    def forward(self, *data: Any, **inputs: Any) -> dict[str, Array]:
        """As ``Net.forward``; see the class for batches of another size."""
        called = perf_counter()
        feeds = self._feeds(data, inputs)
        self.reshape(**{name: array.shape for name, array in feeds.items()})
        sizes = {array.shape[0] for array in feeds.values()}
        if len(sizes) > 1:
            raise UsageError(f"inputs of different batches: {', '.join(map(str, sorted(sizes)))}")
        count = sizes.pop()
        passes: list[tuple[dict[str, Array], PerfInfo]] = []
        for part in self._parts(feeds, count):
            passes.append(self._execution.run(part, self._keep, None if passes else called))
        self._values = (
            passes[0][0] if len(passes) == 1 and count == self.batch else self._joined([p[0] for p in passes], count)
        )
        self.perf = joined([perf for _, perf in passes], count, (perf_counter() - called) * 1000)
        self._log_pass()
        return self._results(self._values)

    def stream(self, batches: Iterable[Any]) -> Iterator[dict[str, Array]]:
        """As ``Net.stream``; batches of the compiled size only."""
        feeds = (self._feeds((), b) if isinstance(b, Mapping) else self._feeds((b,), {}) for b in batches)
        for kept, perf in self._execution.stream(self._alike(feeds), self._keep):
            self._values, self.perf = kept, perf
            yield self._results(kept)

    def _parts(self, feeds: Mapping[str, Array], count: int) -> Iterator[dict[str, Array]]:
        for first in range(0, count, self.batch):
            part = {name: array[first : first + self.batch] for name, array in feeds.items()}
            missing = self.batch - min(self.batch, count - first)
            if missing:
                part = {name: np.concatenate([a, np.repeat(a[-1:], missing, 0)]) for name, a in part.items()}
            yield part

    def _joined(self, parts: Sequence[Mapping[str, Array]], count: int) -> dict[str, Array]:
        for blob in parts[0]:
            if self._shapes[blob][:1] != (self.batch,):
                raise UsageError(
                    f"output {self.graph.caffe_name(blob)!r} of {show(self._shapes[blob])} has no batch axis: "
                    f"{count} images cannot be joined from passes of {self.batch}",
                    hint=f"feed {self.batch} images at a time",
                )
        return {blob: np.concatenate([part[blob] for part in parts])[:count] for blob in parts[0]}


# What Net's own defaults are: these say nothing.
_NOTHING: dict[str, tuple[Any, ...]] = {
    "phase": ("TEST",),
    "level": (0,),
    "stages": ((), []),
    "shapes": (None, {}),
    "engine": (None, {}),
    "start_layer": ("",),
    "end_layer": ("",),
    "bits": (8,),
    "scheme": ("Xilinx",),
}
