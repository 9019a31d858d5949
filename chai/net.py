"""Net: a network, loaded once, run many times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from . import devices
from .blob import Shape, count, show
from .env import env
from .errors import ModelError, PluginError, UsageError
from .fixed import SCHEMES, Format
from .graph import Graph, Layer, fillers
from .limits import limits
from .parser.caffemodel import Weights, check_fit
from .passes.cut import cut
from .passes.infer_shapes import infer_shapes
from .plugins import CustomLayer
from .plugins.failure import NO_PARAMETERS
from .runtime import host as executor
from .runtime.blobs import Blobs
from .runtime.perf import PerfInfo
from .util.files import digest
from .util.lazy_numpy import np
from .util.log import logger
from .util.text import visible
from .zoo.locate import is_compiled, locate, read_graph

if TYPE_CHECKING:
    from PIL.Image import Image

    from .blob import Array
    from .images.preprocess import Card
    from .offload.plan import Offload
    from .offload.schedule import Schedule
    from .overlay import Overlay

log = logger("chai")
SIZES = 4  # input sizes whose schedules are kept


class Net:
    """A Caffe network on a device.

    ``prototxt``    a path, a .chai file (CompiledNet), or the name of a shipped network (``chai.Net("googlenet", weights)``)
    ``caffemodel``  its weights; without them a shipped network takes its own where it has some, any other random ones
    ``device``      "emulator": what the overlay can run in its fixed point, the rest on the host (default, unless
                    CHAI_DEVICE says otherwise); "float": everything on the host in float32, Caffe's own numbers
    ``overlay``     name or manifest of the overlay (default: pynq-z2)
    ``engine``      layers that shall run elsewhere than the overlay would choose, {layer: "host" or "fpga"}
    ``start_layer``, ``end_layer``   only the part of the network between them, both included
    ``calibrate``   inputs that the formats of a network without precision_param are taken from, an array or {blob:
                    array}; default: the first batch
    ``bits``, ``scheme``   of those formats: 8 or 6, "Xilinx" or "DynamicFixed"
    ``custom``      custom layers of this network alone, {type: function}
    ``autotune``    custom layers with several implementations take the fastest on this machine, measured once
    ``jit``         False: custom layers run as plain Python, under a debugger if you like
    ``batch``       images per forward pass, instead of the file's
    ``keep``        "outputs", "all", or names of blobs that ``net.blobs`` shall have after a pass; it changes no bit of
                    the outputs
    ``phase``, ``level``, ``stages``   what include and exclude rules are asked about
    ``strict``      refuse fields that Caffe's schema does not have, and custom layers beyond CHaiDNN's limits (one
                    top, not in place)
    ``shapes``      input sizes, {blob: shape}, for files that do not say them

    Raises ParseError, ModelError, PluginError and DeviceError, each naming file, line or layer; OSError for a file that
    cannot be opened.
    """

    _closed = False
    _tentative = False  # whether the schedule is only there to be looked at: placeholder formats, or no weights
    _partial: ClassVar[bool] = False  # whether the caffemodel may lack the weights of some layers

    def __new__(cls, prototxt: str | Path = "", *_given: Any, **_options: Any) -> Net:
        """A compiled network for a .chai file."""
        if cls is Net and is_compiled(prototxt):
            from .artifact.source import CompiledNet

            return super().__new__(CompiledNet)
        return super().__new__(cls)

    def __init__(
        self,
        prototxt: str | Path,
        caffemodel: str | Path | None = None,
        device: str | None = None,
        *,
        overlay: str | Path | None = None,
        custom: Mapping[str, Callable[..., Any]] | None = None,
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
        scheme: str = "Xilinx",
        autotune: bool = False,
        strict: bool = False,
        jit: bool = True,
    ) -> None:
        if bits not in (8, 6) or scheme not in SCHEMES:
            raise UsageError(f"bits {bits}, scheme {scheme!r}: expected 8 or 6 and {' or '.join(SCHEMES)}")
        self.device = devices.open(device or env().device or devices.DEFAULT)
        path, weights = locate(prototxt, caffemodel)
        self.graph: Graph = read_graph(path, custom, phase, level, stages, strict)
        for layer in self.graph.layers:
            if isinstance(layer, CustomLayer):
                layer.autotune, layer.jit = autotune, jit
        if start_layer or end_layer:
            self.graph = _part(self.graph, start_layer, end_layer, shapes or {})
            shapes = {b: s for b, s in (shapes or {}).items() if b in self.graph.inputs}
        self.weights: Weights | None = Weights(weights) if weights is not None else None
        self._check_digest(weights)
        self.perf = PerfInfo()
        self._attached = False
        self._random: list[str] = []  # layers whose weights are random
        self._values: dict[str, Array] = {}
        self._keep = self._kept(keep)
        self._shapes: dict[str, Shape] = {}
        self._prepared: set[tuple[tuple[str, Shape], ...]] = set()
        self.formats: Mapping[str, Format] | None = None
        self.overlay: Overlay | None = _load_overlay(overlay) if self.device.fixed else None
        self._engine = dict(engine or {})
        self._bits, self._scheme = bits, scheme
        self._offloads: dict[tuple[Shape | None, ...], Offload] = {}
        wanted = dict(self.graph.inputs)
        for blob, shape in (shapes or {}).items():
            wanted[self._input(blob)] = tuple(shape)
        if batch is not None:
            if batch < 1:
                raise UsageError(f"batch {batch}: expected at least 1")
            wanted = {b: None if s is None else (batch, *s[1:]) for b, s in wanted.items()}
        if all(s is not None for s in wanted.values()):
            self.reshape(**{b: s for b, s in wanted.items() if s is not None})
        if calibrate is not None:
            self.calibrate(**calibrate) if isinstance(calibrate, Mapping) else self.calibrate(calibrate)

    # -- what a network has

    @property
    def name(self) -> str:
        """The prototxt's name for the network, or its file's."""
        return self.graph.name or Path(self.graph.path).stem

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
        """Shape of every blob, by Caffe's name, at the present input sizes; empty before they are known."""
        return {name: self._shapes[blob] for name, blob in self.graph.latest.items() if blob in self._shapes}

    @property
    def blobs(self) -> Blobs:
        """Blobs of the last pass, by Caffe's name: the outputs, and what ``keep`` asks for. In place: the last writer's.

        A blob that a pass folds away on an overlay (the top of a convolution before its BatchNorm) is computed aside; see
        ``Blobs`` for those of a compiled network.
        """
        return Blobs(self.name, self.graph, self._values, self._keep)

    @property
    def params(self) -> dict[str, list[Array]]:
        """Trained parameters by layer, in caffemodel order. Writing into them changes the network.

        On an overlay they are read when the next pass begins after this was asked for.
        """
        self._forget_offloads()
        for layer in self.graph.layers:
            layer.changed()
        return {layer.name: layer.blobs for layer in self.graph.layers if layer.blobs}

    @cached_property
    def card(self) -> Card:
        """Title, labels and preprocessing, from a .toml beside the prototxt; empty without one."""
        from .images.preprocess import read_card

        return read_card(self.graph.path)

    def preprocess(self, pictures: Iterable[str | Path | Image]) -> Array:
        """Pictures, or their files, as a batch for ``forward``: float32 (N, C, H, W).

        What ``card`` says is done to them; without a word in it, what the data layer of a training net says. Raises
        UsageError for a network with several inputs or of unknown input size, ParseError for what is no picture.
        """
        from .images.preprocess import from_transform, read

        if len(self.inputs) != 1 or not self._shapes:
            raise UsageError(
                f"pictures for {self.name}: inputs {', '.join(self.inputs)} of known size are needed to be one",
                hint="Net(..., shapes={blob: shape}), or preprocess with chai.Preprocess",
            )
        blob = self.inputs[0]
        how, transform = self.card.preprocess, self.graph.transforms.get(blob)
        if transform is not None and not how.given:
            how = from_transform(transform)
        images = (read(p) if isinstance(p, (str, Path)) else p for p in pictures)
        items = [how(image, self._shapes[blob]) for image in images]
        if not items:
            raise UsageError(f"preprocess: there is no picture for {self.name}")
        return np.stack(items)

    def shapes_of(self, blob: str) -> Shape:
        """Shape of a blob by its id, at the present input sizes."""
        return self._shapes[blob]

    @property
    def values(self) -> dict[str, Array]:
        """Blobs of the last pass by id: like ``blobs``, and those that a layer overwrote in place, where they were kept."""
        return dict(self._values)

    def tops(self, layer: str) -> tuple[Array, ...]:
        """What a layer wrote in the last pass, before any layer after it worked in place. Needs ``keep="all"``."""
        tops = self.graph.layer(layer).tops
        if any(t not in self._values for t in tops):
            raise UsageError(f"the tops of layer {layer!r} were not kept", hint='Net(..., keep="all")')
        return tuple(self._values[t] for t in tops)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{b} {show(self._shapes[b])}" if b in self._shapes else b for b in self.graph.inputs)
        layers, outputs = len(self.graph.layers), ", ".join(self.outputs)
        blobs = f"{inputs} -> {outputs}"
        return visible(f"<chai.Net {self.name!r}: {layers} layers, {blobs}, device {self.device.name}>")

    def _repr_html_(self) -> str:
        """Where each layer runs and in which format, in a notebook."""
        from .report.layer_rows import summary, table
        from .util import html

        if self._closed:
            return html.notebook(html.paragraph(f"{self!r}, closed"))
        where = f" of {self.overlay.name}" if self.overlay is not None else ""
        facts = html.paragraph(f"{self!r}{where}: {summary(self)}")
        return html.notebook(facts, html.rows(table(self)))

    # -- running it

    def forward(self, *data: Any, **inputs: Any) -> dict[str, Array]:
        """Run the network once.

        Inputs are arrays by blob name, or one array alone where there is one input: float32 (N, C, H, W), already
        preprocessed. Their sizes may differ from the last pass's. Returns the output blobs by Caffe's name, float32.
        """
        called = perf_counter()
        feeds = self._feeds(data, inputs)
        started = called if self._ready(feeds) else None  # what is prepared once for a size is no part of the pass
        self.reshape(**{name: array.shape for name, array in feeds.items()})
        if self.overlay is None:
            self._values, self.perf = executor.run(self.graph, self._shapes, feeds, self._keep, started)
        else:
            if not self.calibrated:
                self._calibrate(feeds)
            kept, self.perf = self.offload.run(feeds, self._offload_keep(), started)
            self._values = self._named(kept)
        self._log_pass()
        return self._results(self._values)

    def _ready(self, feeds: Mapping[str, Array]) -> bool:
        """Return whether there is nothing to prepare for inputs of these sizes."""
        if not all(self._shapes.get(name) == array.shape for name, array in feeds.items()):
            return False
        return self.overlay is None or (self.calibrated and self._sizes in self._offloads)

    @property
    def _sizes(self) -> tuple[Shape | None, ...]:
        """The input sizes, which all other shapes follow from."""
        return tuple(map(self._shapes.get, self.graph.inputs))

    def stream(self, batches: Iterable[Any]) -> Iterator[dict[str, Array]]:
        """Run many batches, each an array or {blob: array} as ``forward`` takes it; outputs in the same order.

        On an overlay the host works on one batch while the device works on another; a new batch is taken from
        ``batches`` only when there is room for it. All have the size of the first. What a layer raises comes out in
        the place of its batch; the workers have then ended, as they have when the caller stops early.
        """
        feeds = (self._feeds((), b) if isinstance(b, Mapping) else self._feeds((b,), {}) for b in batches)
        first = next(feeds, None)
        if first is None:
            return
        rest = chain((first,), feeds)
        if self.overlay is None:
            for feed in rest:
                yield self.forward(**feed)
            return
        self.reshape(**{name: array.shape for name, array in first.items()})
        if not self.calibrated:
            self._calibrate(first)
        for kept, perf in self.offload.stream(self._alike(rest), self._offload_keep()):
            self._values, self.perf = self._named(kept), perf
            yield self._results(self._values)

    def _alike(self, feeds: Iterable[dict[str, Array]]) -> Iterator[dict[str, Array]]:
        for feed in feeds:
            for name, array in feed.items():
                if array.shape != self._shapes[name]:
                    raise UsageError(
                        f"input {name!r} of {show(array.shape)} in a stream of {show(self._shapes[name])}",
                        hint="batches of one stream have one size; forward takes any",
                    )
            yield feed

    def _offload_keep(self) -> set[str]:
        return self.offload.folded.reads

    def _named(self, kept: Mapping[str, Array]) -> dict[str, Array]:
        return self.offload.folded.compute(kept)

    def _results(self, values: Mapping[str, Array]) -> dict[str, Array]:
        return {name: values[self.graph.latest[name]] for name in self.outputs}

    def calibrate(self, *data: Any, **inputs: Any) -> None:
        """Take the formats of blobs from one float pass over these inputs; they hold until the next call.

        Each blob's format covers the largest magnitude it was seen to have (max calibration).
        """
        feeds = self._feeds(data, inputs)
        self.reshape(**{name: array.shape for name, array in feeds.items()})
        if self.overlay is not None:
            self._calibrate(feeds, asked=True)
            _ = self.offload  # now, not at the first image

    @property
    def calibrated(self) -> bool:
        """Whether the formats are those that passes use: the network's own, or measured."""
        return self.formats is not None and not self._tentative

    @property
    def trained(self) -> bool:
        """Whether the network has weights: those of a caffemodel, or needs none."""
        return self.weights is not None or not self._random

    def plan(self) -> None:
        """Make the schedule before any data was seen, to look at it. A network that is calibrated has its schedule.

        Formats of a network that brings none are placeholders until the first batch or ``calibrate``. Without a
        caffemodel no layer is refused for its weights; ``placed`` marks those whose sums may turn out not to fit. A
        pass makes the schedule again, for the weights it then has.
        """
        from .offload.formats import calibrated, given

        graph = self.offload.graph
        if self.calibrated:
            return
        blobs = {b for layer in graph.layers for b in (*layer.bottoms, *layer.tops)}
        self._set_formats(calibrated(graph, dict.fromkeys(blobs, 1.0), self._bits, self._scheme))
        self._tentative = not (given(graph) and self.trained)

    @property
    def offload(self) -> Offload:
        """Partition and schedule at the present input sizes; UsageError on a device without an overlay."""
        if self.overlay is None:
            raise UsageError(f"device {self.device.name} has no overlay", hint='Net(..., device="emulator")')
        self._check_open()
        if not self._attached:
            self.reshape()  # says which size is missing
        key = self._sizes
        if key not in self._offloads:
            from .offload.plan import Offload  # a float network needs none of it

            if len(self._offloads) == SIZES:
                self._offloads.pop(
                    next(iter(self._offloads))
                ).close()  # the oldest: each has its own codes of the weights
            keep = {blob for blob in self.graph.latest.values() if blob in self._keep}
            self._offloads[key] = Offload(
                self.graph,
                self._shapes,
                self.overlay,
                self.device,
                self._engine,
                keep,
                self.formats,
                trained=self.trained or not self._tentative,
            )
        return self._offloads[key]

    @property
    def schedule(self) -> Schedule:
        """The steps of a forward pass; its conversions are known once the formats are."""
        return self.offload.schedule

    def _calibrate(self, feeds: dict[str, Array], asked: bool = False) -> None:
        from .offload.formats import calibrated, given, ranges

        graph = self.offload.graph
        if given(graph):
            self._set_formats({})
            return
        blobs = list(dict.fromkeys(b for layer in graph.layers for b in (*layer.bottoms, *layer.tops)))
        values, _ = executor.run(self.graph, self._shapes, feeds, blobs)
        seen = ranges({b: values[b] for b in blobs if b in values})  # a label that nobody reads is not fed
        host = self.offload.partition.reasons
        self._set_formats(calibrated(graph, seen, self._bits, self._scheme, host))
        if not asked:
            images, kind = next(iter(feeds.values())).shape[0], f"{self._bits}-bit {self._scheme}"
            text = "%s brings no precision_param: %s formats from the largest values of the first batch (%d images)"
            log.warning(text, self.name, kind, images)

    def _set_formats(self, found: Mapping[str, Format]) -> None:
        """The network's own formats where it brings some, else those ``found``."""
        from .offload.formats import from_precision, given

        graph = self.offload.graph
        self.formats = from_precision(graph) if given(graph) else found
        self._tentative = False
        self._forget_offloads()

    def _forget_offloads(self) -> None:
        for offload in self._offloads.values():
            offload.close()
        self._offloads.clear()

    def reshape(self, **inputs: Shape) -> None:
        """Set input sizes; shapes of all blobs follow. Raises ShapeError and keeps the old ones if they cannot be."""
        sizes = {
            **{b: self._shapes.get(b) or s for b, s in self.graph.inputs.items()},
            **{self._input(b): tuple(s) for b, s in inputs.items()},
        }
        known = {b: s for b, s in sizes.items() if s is not None}
        if self._attached and all(self._shapes.get(b) == s for b, s in known.items()):
            return
        shapes = infer_shapes(self.graph, known)
        if not self._attached:
            self._attach(shapes)
        else:
            check_weights(self.graph.layers, shapes)
        key = tuple(sorted(known.items()))
        if key not in self._prepared:
            for layer in self.graph.layers:
                self._prepare(layer, shapes)
            if self.overlay is None:
                executor.claim(self.graph, shapes)
            self._prepared.add(key)
        self._shapes = shapes

    def _prepare(self, layer: Layer, shapes: Mapping[str, Shape]) -> None:
        try:
            layer.prepare(tuple(shapes[b] for b in layer.bottoms), tuple(shapes[t] for t in layer.tops if t in shapes))
        except PluginError as error:
            if self.weights is not None or error.hint != NO_PARAMETERS:
                raise
            # its function may need parameters that are not there: whoever runs it will be told, a plan needs none

    def close(self) -> None:
        """Let go of blobs, weights and what a device holds; with the last network on it, of the device too."""
        self._closed = True
        self._values = {}
        self._forget_offloads()
        self.device.leave()
        for layer in self.graph.layers:
            layer.blobs = []

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self.name} is closed", hint="ask before close(), or before its with block ends")

    def __enter__(self) -> Net:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def _kept(self, keep: str | Sequence[str]) -> set[str]:
        graph = self.graph
        if keep == "outputs":
            return set(graph.output_blobs)
        if keep == "all":
            return {*graph.folded, *(t for layer in graph.layers for t in layer.tops)}
        unknown = [k for k in ([keep] if isinstance(keep, str) else keep) if k not in graph.latest]
        if unknown:
            raise UsageError(
                f"keep: there is no blob {unknown[0]!r}",
                hint='"outputs", "all" or a list of: ' + ", ".join(list(graph.latest)[:12]),
            )
        return {*graph.output_blobs, *(graph.latest[k] for k in ([keep] if isinstance(keep, str) else keep))}

    def _input(self, name: str) -> str:
        if name not in self.graph.inputs:
            raise UsageError(f"{name!r} is no input of {self.name}", hint="inputs: " + ", ".join(self.graph.inputs))
        return name

    def _feeds(self, data: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Array]:
        self._check_open()
        names = list(self.graph.inputs)
        if len(data) > len(names):
            raise UsageError(f"{len(data)} arrays for {len(names)} inputs: {', '.join(names)}")
        given = {**dict(zip(names, data)), **inputs}
        missing = [n for n in names if n not in given]
        if missing:
            raise UsageError(
                f"input {missing[0]!r} is missing", hint=f"net.forward({', '.join(f'{n}=array' for n in names)})"
            )
        feeds = {}
        for name, value in given.items():
            array = np.asarray(value)
            if array.dtype.kind not in "fiub":
                raise UsageError(f"input {self._input(name)!r}: expected numbers, found dtype {array.dtype}")
            feeds[self._input(name)] = np.asarray(array, np.float32, order="C")
        return feeds

    def _attach(self, shapes: Mapping[str, Shape]) -> None:
        """Give every layer its trained parameters."""
        filled = check_fit(self.graph, shapes, self.weights, self._partial) if self.weights is not None else set()
        for layer in self.graph.layers:
            expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
            self._check_size(layer.name, expected)
            if self.weights is not None and layer.name not in filled and layer.name in self.weights:
                stored = self.weights.load(layer.name)
                layer.blobs = stored if layer.free_weights else [s.reshape(e) for s, e in zip(stored, expected)]
            elif expected:
                self._random.append(layer.name)
                layer.blobs = fillers.fill(layer.name, expected, layer.fillers())
        if not self.trained:
            log.warning("%s: no caffemodel: %d layers have random weights", self.name, len(self._random))
        self._attached = True

    def _check_digest(self, weights: Path | None) -> None:
        wanted = self.graph.weights_digest
        if wanted is not None and weights is not None and digest(weights) != wanted:
            text = "%s was quantised for other weights than %s: its formats may not fit them"
            log.warning(text, self.graph.path, weights)

    def _check_size(self, name: str, expected: tuple[Shape, ...]) -> None:
        elements = sum(map(count, expected))
        if elements > limits().blob_elements:
            raise ModelError(f"layer {name!r}: its weights " + limits().exceeded("blob_elements", elements), layer=name)

    def _log_pass(self) -> None:
        if env().debug >= 2:
            for step in self.perf.steps:
                log.info("%-6s %9.3f ms  %s (%s)", step.engine, step.ms, step.name, step.type)
        if env().debug >= 3:
            for name, value in self.blobs.readable.items():
                log.info("%s %s [%g, %g]", name, show(value.shape), value.min(), value.max())


def check_weights(layers: Iterable[Layer], shapes: Mapping[str, Shape]) -> None:
    """Whether the trained parameters that layers have are those they need at these sizes. Raises ShapeError."""
    for layer in layers:
        expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
        for i, (blob, shape) in enumerate(zip(layer.blobs, expected)):
            if blob.shape != shape:
                raise layer.wrong(
                    f"at these input sizes its weights (blob {i}) would be {show(shape)}, they are {show(blob.shape)}"
                )


def _part(graph: Graph, start: str, end: str, given: Mapping[str, Shape]) -> Graph:
    sizes = {blob: given.get(blob, shape) for blob, shape in graph.inputs.items()}
    known = {blob: shape for blob, shape in sizes.items() if shape is not None}
    return cut(graph, start, end, infer_shapes(graph, known) if len(known) == len(sizes) else {})


def _load_overlay(name: str | Path | None) -> Overlay:
    from .overlay import load

    return load(name) if name is not None else load()
