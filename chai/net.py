"""Net: a network that is loaded once and run many times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from .artifact.opening import opened
from .blob import Array, Shape, shape_for, show
from .devices.base import Device
from .errors import UsageError
from .fixed import Format
from .graph import Graph
from .overlay import Overlay
from .runtime.batches import alike, batches_of, feeds_of, input_of, named, run_batches, shows_inputs, stream_batches
from .runtime.blobs import Blobs, FinishedPass, kept_blobs
from .runtime.dump import log_pass
from .runtime.losses import Losses
from .runtime.renewing import Renewing, Resized, Taken, Written
from .runtime.shared import Shared
from .runtime.times import Times
from .text import number_of, visible
from .util.keywords import method_of
from .util.lazy_numpy import np
from .util.paths import stem
from .util.suggest import did_you_mean
from .zoo.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

    from .images.pictures import Pictures
    from .images.preprocess import Preprocess
    from .offload.headroom import Basis
    from .offload.plan import Partition
    from .offload.schedule import Schedule
    from .parser.caffemodel import Stored
    from .passes.infer_shapes import Renewed
    from .runtime.execution import Execution
    from .runtime.lanes import Readiness
    from .runtime.perf import PerfInfo
    from .zoo.card import Card

    Feeds = dict[str, Any]  # arrays, or Pictures on an overlay


class Net(Shared):
    """A network of Caffe or ONNX on a device.

    ``prototxt``    a path, the name of a shipped network (``chai.Net("googlenet", weights)``), a .chai file, or an ONNX
                    file, as path or bytes, which holds its weights
    ``caffemodel``  a path, the name of fetched weights, an ONNX file's .formats.json; default: shipped ones, else random
    ``device``      "emulator": layers that the overlay supports in fixed point, the rest on the host (default, unless
                    CHAI_DEVICE is set); "float": everything on the host in float32, with Caffe's results; or a Device
    ``overlay``     name or manifest of the overlay (default: pynq-z2)
    ``engine``      engines of layers, instead of chai's choice, {layer: "host" or "fpga"}
    ``place``       "limits": the overlay runs all that its limits allow; "cost": but for segments that the manifest's host
                    model says its processor runs faster; a path: by this file of ``chai devices --measure``
    ``start_layer``, ``end_layer``   run only the part of the network between them, both included
    ``calibrate``   inputs to measure the formats of a network without precision_param on (default: the first batch)
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
    ``detect``      head of a detector, a name or the keys of [detect] in its .toml (docs/detect.md): boxes become an output

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

    _lacking: ClassVar[str] = "all"  # layers whose weights may be missing: "some", "all" or none of them, or "none"

    @method_of(Options, UsageError)
    def __init__(self, options: Options) -> None:
        super().__init__()
        self._last = FinishedPass({}, Times())
        self._shapes: dict[str, Shape] = {}
        self._source = opened(options, self._lacking)
        for layer in self.graph.layers:
            layer.enter(self, options.autotune, options.jit)
        self._renewing = Renewing(self.graph.layers)
        self._losses = Losses(self.graph)
        self._keep = frozenset(kept_blobs(self.graph, options.keep) | self._losses.reads)
        self._own = shows_inputs(self.graph, self._keep)  # whether results would change with the caller's arrays
        sizes = self._sizes(options)
        if len(sizes) == len(self.graph.inputs):
            self.reshape(**sizes)
        if options.calibrate is not None:
            inputs = options.calibrate
            self.calibrate(**inputs) if isinstance(inputs, Mapping) else self.calibrate(inputs)
            if options.batch is not None or options.shapes:  # requested sizes, not those of the images
                self.reshape(**sizes)

    def _sizes(self, options: Options) -> dict[str, Shape]:
        """Return the sizes of the inputs that are known: the file's, with those that the options ask for."""
        sizes = dict(self.graph.inputs)
        for blob, shape in (options.shapes or {}).items():
            if blob in sizes or not (options.start_layer or options.end_layer):  # else of an input that was cut away
                sizes[input_of(self.graph, self.name, blob)] = shape_for(blob, shape)
        if options.batch is not None:
            if options.batch < 1:
                raise UsageError(f"batch {options.batch}: expected at least 1")
            sizes = {b: None if s is None else (options.batch, *s[1:]) for b, s in sizes.items()}
        return {b: s for b, s in sizes.items() if s is not None}

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
    def weights(self) -> Stored | None:
        """The caffemodel or ONNX file; None without one."""
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
    def basis(self) -> Basis | None:
        """Number of images, margin, bits and scheme of measured formats; None for those that the network brings."""
        return self._source.basis

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
        from .runtime.perf import PerfInfo  # most passes show no times

        return PerfInfo.of(self._last.times)

    @property
    def params(self) -> dict[str, list[Array]]:
        """Trained parameters by layer, in caffemodel order. Writing into them changes the network.

        On an overlay the next pass after each access to ``params`` reads them again. An array in place of one of them counts
        from the next pass on, which raises ShapeError if it has another shape. Raises UsageError for a .chai file.
        """
        return self._changing(self._source.params)

    def preprocess(self, pictures: Iterable[str | Path | Image], fast_decode: bool = False) -> Array:
        """Return pictures, or picture files, as a batch for ``forward``: float32 (N, C, H, W).

        They are preprocessed as in ``card``, else as in the data layer of a training net. Raises UsageError for a network
        with several inputs or unknown input size, ParseError for a file that is no picture.
        """
        return self.pictures(pictures, fast_decode).floats()

    def pictures(self, pictures: Iterable[str | Path | Image], fast_decode: bool = False) -> Pictures:
        """Return pictures, or picture files, resized and cropped as by ``preprocess``, as a batch of bytes for ``forward``.

        ``fast_decode``  decode JPEG files of at least twice the network's size in reduced size: other pixels than Caffe's
        """
        from .images.files import prepared

        shapes = self._shapes  # read once: another thread may change it
        if len(self.inputs) != 1 or not shapes:
            raise UsageError(
                f"pictures for {self.name}: inputs {', '.join(self.inputs)} of known size are needed to be one",
                hint="Net(..., shapes={blob: shape}), or preprocess with chai.Preprocess",
            )
        (blob,) = self.inputs
        return prepared(pictures, self._preprocess(blob), shapes[blob], fast_decode)

    def _preprocess(self, blob: str) -> Preprocess:
        return self.card.preprocess_after(self.graph.transforms.get(blob))

    def shapes_of(self, blob: str) -> Shape:
        """Return the shape of a blob by its id, for the current input sizes."""
        return self._shapes[blob]

    @property
    def values(self) -> dict[str, Array]:
        """Blobs of the last pass by id: those of ``blobs``, and kept blobs that a layer in place overwrote."""
        return dict(self._last.values)

    def tops(self, layer: str) -> tuple[Array, ...]:
        """Return a layer's tops in the last pass, before later layers changed them in place. Needs ``keep="all"``."""
        values, layers = self._last.values, self.graph.by_name
        if layer not in layers:
            raise UsageError(f"there is no layer {layer!r} in {self.name}", hint=did_you_mean(layer, layers))
        tops = layers[layer].tops
        if any(top not in values for top in tops):
            raise UsageError(f"the tops of layer {layer!r} were not kept", hint='Net(..., keep="all")')
        return tuple(values[top] for top in tops)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{b} {show(self._shapes[b])}" if b in self._shapes else b for b in self.graph.inputs)
        layers, outputs = number_of(len(self.graph.layers), "layer"), ", ".join(self.outputs)
        return visible(f"<chai.Net {self.name!r}: {layers}, {inputs} -> {outputs}, device {self.device.name}>")

    def _repr_html_(self) -> str:
        """Return a table of the layers with engine and format for notebooks."""
        from .report.layer_rows import notebook

        return notebook(self, self._lifetime.closed)

    # -- passes

    def forward(self, /, *data: Any, **inputs: Any) -> dict[str, Array]:
        """Run the network once.

        Inputs are arrays by blob name, a dict of them, or one array if there is one input: float32 (N, C, H, W), already
        preprocessed, or chai.Pictures. One that nothing reads may be left out. Their sizes may differ from the last pass's.
        Returns the output blobs by Caffe's name, float32, in memory of their own, which those that relay one blob (Split,
        Flatten, Reshape) share; with labels among the inputs the losses that compare them, too.
        """
        called = perf_counter()
        arrays = named(self.graph, data, inputs)
        labels = self._losses.taken(arrays)
        feeds = self._feeds(arrays, self._own)
        return self._using(self._forward, feeds, labels, called, self._renewing.batch())

    def _forward(self, feeds: Feeds, labels: Mapping[str, Array], called: float, written: Written) -> dict[str, Array]:
        values, times = self._renewing.planned(partial(self._pass, feeds, called, written))
        return self._finished(values, times, labels)

    def _pass(self, feeds: Feeds, called: float, written: Written) -> tuple[Mapping[str, Array], Times]:
        shapes, planned, ready = self._changing(self._planned, feeds, written)
        started = called if ready else None  # preparation for a new size does not count
        if planned is None:
            host = self._changing(self._source.host, shapes)
            return host.run(feeds, self._keep, started, None, written)
        kept, times = run_batches(planned, feeds, planned.needed(self._keep), started, written)
        return planned.named(kept), times

    def stream(self, batches: Iterable[Any], ready: Readiness | None = None) -> Iterator[dict[str, Array]]:
        """Run many batches, each an array or {blob: array} like an input of ``forward``; yield what it returns, in their order.

        On an overlay the host works on one batch while the device works on another; the next batch is taken from
        ``batches`` only when the pipeline has room. A batch is copied when it is taken, so that the source may write the next
        one into the same array or dict. All have the size of the first; for a .chai file they overlap only at its own size.
        An exception of a layer or of ``batches`` is raised in place of its batch, one of a signal handler at once; all workers
        have ended by then, and also when the caller stops early. On an overlay no forked process can go on with it (UsageError).

        ``ready(wake)``  whether the next batch is there; if not, it calls ``wake`` when it is: results wait for none meanwhile
        """
        unlabelled, labels = self._losses.apart(batches)
        feeds = batches_of(self.graph, partial(self._feeds, own=True), (unlabelled,), {})
        if (first := next(feeds, None)) is None:
            return
        rest = chain((first,), feeds)
        if self.overlay is None or self._renewing.happened:
            for feed in rest:
                yield self.forward(**feed, **labels.popleft())
            return
        yield from self._streaming(self._stream(rest, first, labels.popleft, ready))

    def _stream(
        self, feeds: Iterator[Feeds], first: Feeds, labels: Callable[[], Mapping[str, Array]], ready: Readiness | None
    ) -> Iterator[dict[str, Array]]:
        written = self._renewing.batch()
        shapes, offload, _ = self._changing(self._planned, first, written)
        assert offload is not None
        batches = Taken(alike(feeds, shapes), self._renewing, written)
        results = stream_batches(offload, batches, offload.needed(self._keep), first, ready)
        try:
            for kept, times in results:
                batches.finished()
                yield self._finished(offload.named(kept), times, labels())
                self._check_open()
                self._check_outside()
        except Resized:  # from here on one pass at a time, each with its sizes
            self._renewing.happened = True
        else:
            return
        finally:
            results.close()
        for feed, written in batches.rest():
            yield self._forward(feed, labels(), perf_counter(), written)

    def _planned(self, feeds: Feeds, written: Written) -> tuple[dict[str, Shape], Execution | None, bool]:
        """Return shapes for these inputs, what runs them on an overlay, and whether they were known."""
        self._check_open()
        before = self._shapes
        self._resize({name: feed.shape for name, feed in feeds.items()}, written.sizes)
        shapes, source, ready = self._shapes, self._source, self._shapes is before
        if source.overlay is None:
            return shapes, None, ready
        ready = ready and source.calibrated and source.planned(shapes)
        if not source.calibrated:
            written.shown.update(source.calibrate(shapes, (feeds,), asked=False))
        return shapes, source.execution(shapes, self._keep), ready

    def _finished(self, values: Mapping[str, Array], times: Times, labels: Mapping[str, Array]) -> dict[str, Array]:
        """Publish a pass as the last one, and return its outputs and losses."""
        losses, times = self._losses.compute(values, labels, times)
        if not self._lifetime.closed:
            self._last = FinishedPass(self._losses.with_unread(values, labels), times)
        log_pass(self.graph, values, times)
        return {name: values[self.graph.latest[name]] for name in self.outputs} | losses

    def calibrate(self, /, *data: Any, **inputs: Any) -> None:
        """Set the formats of blobs from float passes over these inputs, until the next call.

        ``data`` is as for ``forward``, or an iterator of batches, of any sizes. Each format covers its blob's largest magnitude,
        with a margin if the images are few. They are computed one by one: memory does not grow with them.
        """
        self._using(self._changing, self._calibrate, batches_of(self.graph, self._feeds, data, inputs))

    def _calibrate(self, feeds: Iterator[Feeds]) -> None:
        self._check_open()
        if (first := next(feeds, None)) is None:
            raise UsageError("calibrate: there is no batch")
        self.reshape(**{name: array.shape for name, array in first.items()})
        if self.overlay is not None:
            self._source.calibrate(self._shapes, chain((first,), feeds), asked=True)
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

        Without formats there are placeholders until the first batch or ``calibrate``. Without a caffemodel no layer is refused
        for its weights; ``placed`` marks those whose sums may overflow. The first pass makes the schedule again, for its weights.
        """
        _ = self.offload
        self._changing(lambda: self._source.preview(self._shapes))

    @property
    def offload(self) -> Execution:
        """Return the Execution for the current input sizes: its plan, and the device's programs.

        Raises UsageError on a device without an overlay.
        """
        if self.overlay is None:
            raise UsageError(f"device {self.device.name} has no overlay", hint='Net(..., device="emulator")')
        self._check_open()
        if not self._shapes:
            self.reshape()  # raises an error that names the missing size
        return self._changing(lambda: self._source.execution(self._shapes, self._keep))

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
        self._changing(self._resize, {blob: shape_for(blob, shape) for blob, shape in inputs.items()}, {})

    def _resize(self, inputs: Mapping[str, Shape], renewed: Renewed) -> None:
        self._source.replaced()
        known, shapes = self.graph.inputs, self._shapes
        if shapes and not renewed and all(blob in known and shapes.get(blob) == size for blob, size in inputs.items()):
            return
        sizes = {b: shapes.get(b) or s for b, s in known.items()}
        sizes |= {input_of(self.graph, self.name, b): s for b, s in inputs.items()}
        self._shapes = self._source.sized({b: s for b, s in sizes.items() if s is not None}, renewed)

    def _release(self) -> None:
        self._last = FinishedPass({}, Times())
        self._source.close()
        self.device.leave()

    def _feeds(self, arrays: Mapping[str, Any], own: bool = False) -> Feeds:
        self._check_open()
        feeds, shapes = feeds_of(self.graph, self.name, arrays, own), self._shapes
        for blob, feed in feeds.items():
            if not isinstance(feed, np.ndarray):
                pictures = feed.fitting(blob, shapes.get(blob), self._preprocess(blob))
                feeds[blob] = pictures.floats() if self.overlay is None else pictures
        return feeds
