"""Net: a network that is loaded once and run many times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from . import artifact, devices, runtime
from .blob import Shape, show
from .env import env
from .errors import UsageError
from .fixed import SCHEMES, Format
from .graph import Graph
from .overlay import default, load as load_overlay
from .runtime.batches import alike, batches_of, feeds_of, input_of, named, run_batches, stream_batches
from .runtime.blobs import Blobs, Pass, kept_blobs
from .runtime.dump import log_pass
from .runtime.losses import Losses
from .runtime.renewing import Renewing
from .runtime.shared import Shared
from .runtime.times import Times
from .util.interpreter import Uncollected
from .util.paths import stem
from .util.suggest import did_you_mean
from .util.text import visible
from .zoo import is_compiled

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

    from .blob import Array
    from .devices.base import Device
    from .offload.plan import Partition
    from .offload.schedule import Schedule
    from .overlay import Overlay
    from .parser.caffemodel import Weights
    from .plugins.loading import Sources
    from .runtime import PerfInfo
    from .runtime.execution import Execution
    from .runtime.source import Source
    from .zoo.card import Card


class Net(Shared):
    """A Caffe network on a device.

    ``prototxt``    a path, the name of a shipped network (``chai.Net("googlenet", weights)``), or a .chai file
    ``caffemodel``  its weights; default: the weights of a shipped network if it has some, else random weights
    ``device``      "emulator": layers that the overlay supports in fixed point, the rest on the host (default, unless
                    CHAI_DEVICE is set); "float": everything on the host in float32, with Caffe's results; or a Device
    ``overlay``     name or manifest of the overlay (default: pynq-z2)
    ``engine``      engines of layers, instead of chai's choice, {layer: "host" or "fpga"}
    ``start_layer``, ``end_layer``   run only the part of the network between them, both included
    ``calibrate``   inputs to measure the formats of a network without precision_param, an array or {blob: array};
                    default: the first batch
    ``bits``, ``scheme``   of those formats: 8 or 6, "Xilinx" or "DynamicFixed" (default: 8, the overlay's first scheme)
    ``custom``      custom layers for this network only: a file or folder (its code is run), a module, a class, a
                    function, {type: function}, or a list of these
    ``autotune``    use the fastest implementation of each custom layer on this machine, measured once
    ``jit``         False: run custom layers as plain Python, for example in a debugger
    ``batch``       images per forward pass, instead of the file's
    ``keep``        "outputs", "all", or names of the blobs in ``net.blobs`` after a pass; never changes the outputs
    ``phase``, ``level``, ``stages``   the state that include and exclude rules are compared with
    ``strict``      refuse fields that Caffe's schema does not have, and custom layers beyond CHaiDNN's limits (one
                    top, not in place)
    ``shapes``      input sizes, {blob: shape}, for files without them

    A .chai file was planned when it was compiled, and its weights are packed for the overlay. A batch of another size
    is split or padded; ``net.batch`` is the size without padding. Operations that need other sizes, formats, engines or
    the float weights raise UsageError.

    Several threads may use one Net, with inputs of different sizes too: every call returns the results of its own inputs.
    A layer runs in one thread at a time, so passes overlap but may wait for each other at a layer; new passes wait until
    a calibration has ended. ``blobs`` and ``perf`` are those of the pass that finished last, ``shapes`` those of the
    pass, ``reshape`` or ``calibrate`` that began last. A custom layer cannot run its own network (UsageError). ``close``
    takes effect when all running passes have ended.

    Raises ParseError, ModelError, PluginError and DeviceError, naming file, line or layer; OSError for an unreadable file.
    """

    _partial: ClassVar[bool] = False  # whether the caffemodel may lack the weights of some layers

    def __init__(
        self,
        prototxt: str | Path,
        caffemodel: str | Path | None = None,
        device: str | Device | None = None,
        *,
        overlay: str | Path | None = None,
        custom: Sources | None = None,
        batch: int | None = None,
        keep: str | Sequence[str] = "outputs",
        phase: str = "TEST",
        level: int = 0,
        stages: Sequence[str] = (),
        shapes: Mapping[str, Shape] | None = None,
        engine: Mapping[str, str] | None = None,
        start_layer: str = "",
        end_layer: str = "",
        calibrate: Any = None,
        bits: int = 8,
        scheme: str | None = None,
        autotune: bool = False,
        strict: bool = False,
        jit: bool = True,
        **unknown: NoReturn,
    ) -> None:
        super().__init__()
        self._last = Pass({}, Times())
        self._shapes: dict[str, Shape] = {}
        known = Net.__init__.__kwdefaults__ or {}
        for name in unknown:
            raise UsageError(f"Net has no option {name!r}", hint=did_you_mean(name, ["device", *known]))
        for what, value, known_values in (("bits", bits, (8, 6)), ("scheme", scheme or SCHEMES[0], SCHEMES)):
            if value not in known_values:
                raise UsageError(f"{what} {value!r}: expected {' or '.join(map(str, known_values))}")
        with Uncollected():
            on = devices.open(device or env().device or devices.DEFAULT)
        self._source: Source
        if is_compiled(prototxt):
            settled = {"phase": phase, "level": level, "stages": (*stages,), "start_layer": start_layer}
            settled |= {"end_layer": end_layer, "bits": bits, "scheme": scheme}
            changed = [name for name, value in settled.items() if value != known[name]]
            if caffemodel is not None or changed:
                raise UsageError(
                    f"{prototxt} is compiled: {changed[0] if changed else 'a caffemodel'} cannot be given any more",
                    hint="give it to chai compile, or load the prototxt",
                )
            with Uncollected():
                self._source = artifact.CompiledSource(prototxt, on, overlay, custom, strict, engine or {})
        else:
            state, part = (phase, level, stages), (start_layer, end_layer)
            graph, weights = runtime.read_network(prototxt, caffemodel, custom, strict, state, part, shapes or {})
            if any(part):
                shapes = {b: s for b, s in (shapes or {}).items() if b in graph.inputs}
            target = load_overlay(overlay if overlay is not None else default) if on.fixed else None
            form = SCHEMES[0] if target is None else target.scheme(scheme)
            self._source = runtime.PrototxtSource(graph, weights, on, target, engine or {}, bits, form, self._partial)
        for layer in self.graph.layers:
            layer.enter(self, autotune, jit)
        self._renewing = Renewing(self.graph.layers, self._state)
        self._losses = Losses(self.graph)
        self._keep = frozenset(kept_blobs(self.graph, keep) | self._losses.reads)
        asked = {input_of(self.graph, self.name, blob): tuple(shape) for blob, shape in (shapes or {}).items()}
        sizes = {**self.graph.inputs, **asked}
        if batch is not None:
            if batch < 1:
                raise UsageError(f"batch {batch}: expected at least 1")
            sizes = {b: None if s is None else (batch, *s[1:]) for b, s in sizes.items()}
        if all(s is not None for s in sizes.values()):
            self.reshape(**{b: s for b, s in sizes.items() if s is not None})
        if calibrate is not None:
            self.calibrate(**calibrate) if isinstance(calibrate, Mapping) else self.calibrate(calibrate)
            if batch is not None or shapes:  # requested sizes, not those of the images
                self.reshape(**{b: s for b, s in sizes.items() if s is not None})

    # -- attributes

    @property
    def graph(self) -> Graph:
        """Layers and blobs; for a .chai file after the passes."""
        return self._source.graph

    @property
    def device(self) -> Device:
        """The device it runs on."""
        return self._source.device

    @property
    def weights(self) -> Weights | None:
        """The caffemodel; None without one."""
        return self._source.weights

    @property
    def overlay(self) -> Overlay | None:
        """The overlay; None on a device that computes in float32."""
        return self._source.overlay

    @property
    def formats(self) -> Mapping[str, Format] | None:
        """Formats of the blobs on the overlay, by id; None before they are known."""
        return self._source.formats

    @property
    def card(self) -> Card:
        """Title, labels and preprocessing, from the .toml next to the prototxt or from the .chai file; may be empty."""
        return self._source.card

    @property
    def batch(self) -> int:
        """Images per pass without padding: of a .chai file its compiled batch, else that of the current input sizes."""
        return self._source.batch(self._shapes)

    @cached_property
    def name(self) -> str:
        """The network's name in the prototxt, or the name of its file."""
        return self.graph.name or stem(self.graph.path)

    @property
    def inputs(self) -> list[str]:
        """Names of the blobs to feed."""
        return list(self.graph.inputs)

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs that ``forward`` returns."""
        return list(self.graph.outputs)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shape of every blob, by Caffe's name, for the current input sizes; empty before they are known."""
        return {name: self._shapes[blob] for name, blob in self.graph.latest.items() if blob in self._shapes}

    @property
    def blobs(self) -> Blobs:
        """Blobs of the last pass, by Caffe's name: the outputs and those of ``keep``. In place: the last layer's result.

        A blob that is folded away on an overlay (the top of a convolution before its BatchNorm) is computed separately;
        for those of a compiled network see ``Blobs``.
        """
        return Blobs(self.name, self.graph, self._last.values, self._keep)

    @property
    def perf(self) -> PerfInfo:
        """Return the times of the last pass."""
        return runtime.PerfInfo.of(self._last.times)

    @property
    def params(self) -> dict[str, list[Array]]:
        """Trained parameters by layer, in caffemodel order. Writing into them changes the network.

        On an overlay the next pass after each access to ``params`` reads them again. An array in place of one of them counts
        from the next pass on, which raises ShapeError if it has another shape. Raises UsageError for a .chai file.
        """
        with self._changing():
            return self._source.params()

    def preprocess(self, pictures: Iterable[str | Path | Image]) -> Array:
        """Return pictures, or picture files, as a batch for ``forward``: float32 (N, C, H, W).

        They are preprocessed as in ``card``, else as in the data layer of a training net. Raises UsageError for a network
        with several inputs or unknown input size, ParseError for a file that is no picture.
        """
        from .images.files import prepared

        shapes = self._shapes  # read once: another thread may change it
        if len(self.inputs) != 1 or not shapes:
            raise UsageError(
                f"pictures for {self.name}: inputs {', '.join(self.inputs)} of known size are needed to be one",
                hint="Net(..., shapes={blob: shape}), or preprocess with chai.Preprocess",
            )
        (blob,) = self.inputs
        return prepared(pictures, self.card.preprocess_after(self.graph.transforms.get(blob)), shapes[blob])

    def shapes_of(self, blob: str) -> Shape:
        """Return the shape of a blob by its id, for the current input sizes."""
        return self._shapes[blob]

    @property
    def values(self) -> dict[str, Array]:
        """Blobs of the last pass by id: those of ``blobs``, and kept blobs that a layer in place overwrote."""
        return dict(self._last.values)

    def tops(self, layer: str) -> tuple[Array, ...]:
        """Return a layer's tops in the last pass, before later layers changed them in place. Needs ``keep="all"``."""
        values = self._last.values
        tops = {known.name: known.tops for known in self.graph.layers}
        if layer not in tops:
            raise UsageError(f"there is no layer {layer!r} in {self.name}", hint=did_you_mean(layer, tops))
        if any(t not in values for t in tops[layer]):
            raise UsageError(f"the tops of layer {layer!r} were not kept", hint='Net(..., keep="all")')
        return tuple(values[t] for t in tops[layer])

    def __repr__(self) -> str:
        inputs = ", ".join(f"{b} {show(self._shapes[b])}" if b in self._shapes else b for b in self.graph.inputs)
        layers, outputs = len(self.graph.layers), ", ".join(self.outputs)
        return visible(f"<chai.Net {self.name!r}: {layers} layers, {inputs} -> {outputs}, device {self.device.name}>")

    def _repr_html_(self) -> str:
        """Return a table of the layers with engine and format for notebooks."""
        from .report.layer_rows import notebook

        return notebook(self, self._lifetime.closed)

    # -- passes

    def forward(self, /, *data: Any, **inputs: Any) -> dict[str, Array]:
        """Run the network once.

        Inputs are arrays by blob name, a dict of them, or one array if there is one input: float32 (N, C, H, W), already
        preprocessed. One that nothing reads may be left out. Their sizes may differ from the last pass's. Returns the output
        blobs by Caffe's name, float32; with labels among the inputs the losses and measures that compare them, too.
        """
        called = perf_counter()
        data, inputs = named(data, inputs)
        labels = self._losses.taken(inputs)
        feeds = self._feeds(data, inputs)
        with self._using(), self._renewing.alone:
            shapes, planned, ready = self._planned(feeds)
            started = called if ready else None  # preparation for a new size does not count
            if planned is None:
                with self._changing():
                    host = self._source.host(shapes)
                return self._finished(*host.run(feeds, self._keep, started), labels)
            kept, times = run_batches(planned, feeds, planned.needed(self._keep), started)
            return self._finished(planned.named(kept), times, labels)

    def stream(self, batches: Iterable[Any]) -> Iterator[dict[str, Array]]:
        """Run many batches, each an array or {blob: array} like an input of ``forward``; yield what it returns, in their order.

        On an overlay the host works on one batch while the device works on another; the next batch is taken from
        ``batches`` only when the pipeline has room. All have the size of the first; for a .chai file they overlap only
        at its own size. An exception of a layer or of ``batches`` is raised in place of its batch; all workers have ended
        by then, and also when the caller stops early.
        """
        unlabelled, labels = self._losses.apart(batches)
        feeds = batches_of(self._feeds, (unlabelled,), {})
        if (first := next(feeds, None)) is None:
            return
        rest = chain((first,), feeds)
        if self.overlay is None or self._renewing:
            for feed in rest:
                yield self.forward(**feed, **labels.popleft())
            return
        with self._using():
            shapes, offload, _ = self._planned(first)
            assert offload is not None
            with closing(stream_batches(offload, alike(rest, shapes), offload.needed(self._keep), first)) as results:
                for kept, times in results:
                    yield self._finished(offload.named(kept), times, labels.popleft())
                    self._check_open()
                    self._check_outside()

    def _planned(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Shape], Execution | None, bool]:
        """Return shapes for these inputs, what runs them on an overlay, whether they were known. Calibrates without formats."""
        with self._changing():
            self._check_open()
            before = self._shapes
            sizes, source = {name: array.shape for name, array in feeds.items()}, self._source
            self._resize(sizes, self._renewing.begin())
            shapes, ready = self._shapes, self._shapes is before
            if source.overlay is None:
                return shapes, None, ready
            ready = ready and source.calibrated and source.planned(shapes)
            if not source.calibrated:
                source.calibrate(shapes, self._keep, (feeds,), asked=False)
                self._resize(sizes, self._renewing.begin())  # a layer may have gone on to its next item
            return self._shapes, source.execution(self._shapes, self._keep), ready

    def _finished(self, values: Mapping[str, Array], times: Times, labels: Mapping[str, Array]) -> dict[str, Array]:
        """Publish a pass as the last one, and return its outputs and losses."""
        losses, times = self._losses.compute(values, labels, times)
        if not self._lifetime.closed:
            self._last = Pass(self._losses.with_unread(values, labels), times)
        log_pass(self.graph, values, times)
        return {name: values[self.graph.latest[name]] for name in self.outputs} | losses

    def calibrate(self, /, *data: Any, **inputs: Any) -> None:
        """Set the formats of blobs from float passes over these inputs; they remain until the next call.

        ``data`` is as for ``forward``, or an iterator of batches. Each blob's format covers its largest magnitude (max
        calibration). Images are computed one by one: memory does not grow with their number.
        """
        feeds = batches_of(self._feeds, data, inputs)
        with self._using(), self._changing():
            self._check_open()
            if (first := next(feeds, None)) is None:
                raise UsageError("calibrate: there is no batch")
            self.reshape(**{name: array.shape for name, array in first.items()})
            if self.overlay is not None:
                passes = self._renewing.begun(alike(chain((first,), feeds), self._shapes))
                self._source.calibrate(self._shapes, self._keep, passes, asked=True)
                _ = self.offload  # now, not at the first image

    @property
    def calibrated(self) -> bool:
        """Return whether the formats are final: the network's own, or measured."""
        return self._source.calibrated

    @property
    def trained(self) -> bool:
        """Return whether the network has weights from a caffemodel, or needs none."""
        return self._source.trained

    def plan(self) -> None:
        """Make a schedule for display before the first batch. A calibrated network already has its schedule.

        If the network has no formats, they are placeholders until the first batch or ``calibrate``. Without a caffemodel
        no layer is refused for its weights; ``placed`` marks those whose sums may overflow. The first pass makes the
        schedule again, for the weights it then has.
        """
        with self._changing():
            _ = self.offload
            self._source.preview(self._shapes, self._keep)

    @property
    def offload(self) -> Execution:
        """Return the Execution for the current input sizes: its plan, and the device's programs.

        Raises UsageError on a device without an overlay.
        """
        if self.overlay is None:
            raise UsageError(f"device {self.device.name} has no overlay", hint='Net(..., device="emulator")')
        self._check_open()
        with self._changing():
            if not self._shapes:
                self.reshape()  # raises an error that names the missing size
            return self._source.execution(self._shapes, self._keep)

    @property
    def partition(self) -> Partition:
        """Return the engine of each layer, and the reasons for layers on the host."""
        return self.offload.partition

    @property
    def schedule(self) -> Schedule:
        """The steps of a forward pass; conversions are included once the formats are known."""
        return self.offload.schedule

    def reshape(self, /, **inputs: Shape) -> None:
        """Set input sizes and compute all shapes. Raises ShapeError and keeps the old sizes if they are impossible."""
        with self._changing():
            self._resize(inputs)

    def _resize(self, inputs: Mapping[str, Shape], renewed: bool = False) -> None:
        self._source.replaced()
        known, shapes = self.graph.inputs, self._shapes
        if shapes and not renewed and all(blob in known and shapes.get(blob) == size for blob, size in inputs.items()):
            return
        sizes = {b: shapes.get(b) or s for b, s in known.items()}
        sizes |= {input_of(self.graph, self.name, b): tuple(s) for b, s in inputs.items()}
        self._shapes = self._source.sized({b: s for b, s in sizes.items() if s is not None})

    # -- inside

    def _release(self) -> None:
        self._last = Pass({}, Times())
        self._source.close()
        self.device.leave()

    def _feeds(self, data: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Array]:
        self._check_open()
        return feeds_of(self.graph, self.name, data, inputs)
