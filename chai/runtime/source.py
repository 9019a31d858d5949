"""Sources of plans: they give a Net its graph, its parameters and the Executions for its input sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .. import zoo
from ..blob import Shape, count, show
from ..errors import ModelError
from ..fixed import SCHEMES
from ..graph import Graph, fillers
from ..limits import limits
from ..overlay import default, load as load_overlay
from ..parser.caffemodel import Weights, check_fit
from ..passes.cut import cut_sized
from ..passes.infer_shapes import infer_shapes
from ..util.data import malloc
from ..util.files import digest
from ..util.lazy_numpy import np
from ..util.log import logger
from ..zoo.locate import locate, read_graph
from .host.forward import HostPass
from .host.layer import check_weights, prepare
from .host.memory import claimed

if TYPE_CHECKING:
    from ..blob import Array
    from ..devices.base import Device
    from ..fixed import Format
    from ..graph import Layer
    from ..offload.headroom import Basis
    from ..offload.plan import Plan
    from ..overlay import Overlay
    from ..zoo.card import Card
    from ..zoo.options import Options
    from .execution import Execution
    from .measuring import Written

log = logger("chai")
SIZES = 4  # input sizes that stay prepared, and whose schedules are kept


class Source(Protocol):
    """Source of everything that a Net runs. A Net calls it in one thread at a time.

    ``graph``    its layers and blobs, as the Net shows them
    ``weights``  the caffemodel, if there is one
    ``overlay``  None on a device that computes in float32
    ``formats``  of the blobs on the overlay; None before they are known
    ``basis``    what they are based on, if they were measured
    ``calibrated``   whether the formats are final: the network's own, or measured
    ``trained``      whether it has weights, or needs none
    """

    graph: Graph
    device: Device
    weights: Weights | None
    overlay: Overlay | None
    formats: Mapping[str, Format] | None
    basis: Basis | None

    @property
    def calibrated(self) -> bool: ...

    @property
    def trained(self) -> bool: ...

    @property
    def card(self) -> Card:
        """Title, labels and preprocessing."""

    def batch(self, shapes: Mapping[str, Shape]) -> int:
        """Return the images per pass that need no padding."""

    def sized(self, sizes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Prepare the layers for these inputs; return the shape of every blob. Raises ShapeError, UsageError."""

    def planned(self, shapes: Mapping[str, Shape]) -> bool:
        """Return whether there is an Execution for these shapes already."""

    def execution(self, shapes: Mapping[str, Shape], keep: Collection[str]) -> Execution:
        """Return the Execution for batches of these shapes on the overlay."""

    def host(self, shapes: Mapping[str, Shape]) -> HostPass:
        """Return what runs batches of these shapes without an overlay. Raises ShapeError."""

    def calibrate(self, shapes: Mapping[str, Shape], batches: Iterable[Mapping[str, Array]], asked: bool) -> Written:
        """Choose the formats, measured on these inputs if the network brings none.

        If the caller ``asked`` only for a pass over them, return what custom layers wrote, which need not run again.
        """

    def preview(self, shapes: Mapping[str, Shape]) -> None:
        """Make a schedule before the first batch."""

    def params(self) -> dict[str, list[Array]]:
        """Return the trained parameters by layer; the arrays may be modified."""

    def replaced(self) -> bool:
        """Return whether there are other arrays in the lists of ``params``, which are read again then.

        Raises ShapeError for what is no array, and if there are more or fewer.
        """

    def close(self) -> None:
        """Release weights and device memory."""


class Network(Protocol):
    """Attributes of a Net that reports and artifacts read."""

    @property
    def name(self) -> str: ...
    @property
    def graph(self) -> Graph: ...

    @property
    def device(self) -> Device: ...
    @property
    def overlay(self) -> Overlay | None: ...
    @property
    def shapes(self) -> Mapping[str, Shape]: ...
    @property
    def calibrated(self) -> bool: ...
    @property
    def trained(self) -> bool: ...
    @property
    def offload(self) -> Execution: ...
    def shapes_of(self, blob: str) -> Shape: ...
    def reshape(self, /, **inputs: Shape) -> None: ...
    def calibrate(self, /, *data: Any, **inputs: Any) -> None: ...


def _read(path: Path, options: Options) -> Graph:
    """Return the Graph of a prototxt, or of the part of it that the options name."""
    graph = read_graph(path, options.custom, options.phase, options.level, options.stages, options.strict)
    if not options.start_layer and not options.end_layer:
        return graph
    return cut_sized(graph, options.start_layer, options.end_layer, options.shapes or {})


class PrototxtSource:
    """A Graph from a prototxt, and its caffemodel; planned for each set of input sizes.

    ``partial``   whether the caffemodel may lack the weights of some layers
    """

    def __init__(self, options: Options, device: Device, partial: bool) -> None:
        path, weights = locate(options.prototxt, options.caffemodel)
        self.graph = _read(path, options)
        self.weights = Weights(weights) if weights is not None else None
        self.device, self.overlay = device, None
        self._scheme = SCHEMES[0]  # of formats, if the network has none
        if device.fixed:
            self.overlay = load_overlay(default if options.overlay is None else options.overlay)
            self._scheme = self.overlay.scheme(options.scheme)
        self.formats: Mapping[str, Format] | None = None
        self.basis: Basis | None = None
        self._chosen, self._bits, self._partial = dict(options.engine or {}), options.bits, partial
        self._tentative = False  # whether schedules are for display only: placeholder formats, or no weights
        self._attached = False
        self._random: list[str] = []  # layers whose weights are random
        self._read: list[tuple[Layer, tuple[Array, ...]]] = []  # arrays of ``params``, which gave lists of them away
        self._prepared = deque[tuple[Shape | None, ...]](maxlen=SIZES)
        self._executions: dict[tuple[Shape | None, ...], Execution] = {}
        self._rewritten: Graph | None = None  # of all plans: it has copies of the weights that a pass changes
        self._host: HostPass | None = None  # for the shapes that were asked for last
        renewed = [top for layer in self.graph.layers if layer.renews for top in layer.tops]
        self._sizing = [*self.graph.inputs, *renewed]  # the blobs whose shapes determine all others
        self._check_digest(weights)

    @property
    def calibrated(self) -> bool:
        return self.formats is not None and not self._tentative

    @property
    def trained(self) -> bool:
        return self.weights is not None or not self._random

    @cached_property
    def card(self) -> Card:
        return zoo.read_card(self.graph.path)

    # -- sizes and trained parameters

    def batch(self, shapes: Mapping[str, Shape]) -> int:
        return next((shapes[b][0] for b in self.graph.inputs if shapes.get(b)), 1)

    def sized(self, sizes: Mapping[str, Shape]) -> dict[str, Shape]:
        if not self._attached:
            self._attach_free()
        shapes = infer_shapes(self.graph, sizes)
        if not self._attached:
            self._attach(shapes)
        else:
            check_weights(self.graph.layers, shapes)
        key = self._key(shapes)
        if key in self._prepared:
            self._prepared.remove(key)
        else:
            for layer in self.graph.layers:
                prepare(layer, shapes, self.weights is None)
            (malloc.claim if self.overlay is None else malloc.keep_freed)(claimed(shapes))
        self._prepared.append(key)
        return shapes

    def params(self) -> dict[str, list[Array]]:
        self._forget()
        self._rewritten = None
        self._host = None  # which has checked their shapes
        for layer in self.graph.layers:
            layer.changed()
        self._read = [(layer, (*layer.blobs,)) for layer in self.graph.layers if layer.blobs]
        return {layer.name: layer.blobs for layer, _ in self._read}

    def replaced(self) -> bool:
        if all(len(layer.blobs) == len(arrays) and all(map(is_, layer.blobs, arrays)) for layer, arrays in self._read):
            return False
        for layer, arrays in self._read:
            if len(layer.blobs) != len(arrays):
                raise layer.wrong(f"expected {len(arrays)} trained parameters, found {len(layer.blobs)}")
            for i, blob in enumerate(layer.blobs):
                if not isinstance(blob, np.ndarray):
                    raise layer.wrong(f"blob {i} is a {type(blob).__name__}, expected an array {show(arrays[i].shape)}")
                if blob.dtype.kind not in "fiub":
                    raise layer.wrong(f"blob {i} has dtype {blob.dtype}, expected numbers")
                layer.blobs[i] = np.asarray(blob)  # the same memory without what a subclass makes of it, as a mask
        self.params()
        return True

    def _attach_free(self) -> None:
        """Assign trained parameters to the layers that accept any: shapes of custom layers may depend on them."""
        for layer in self.graph.layers:
            if layer.free_weights and self.weights is not None:
                layer.blobs = self.weights.blobs_of(layer) or layer.blobs

    def _attach(self, shapes: Mapping[str, Shape]) -> None:
        """Assign the trained parameters to the layers."""
        filled = check_fit(self.graph, shapes, self.weights, self._partial) if self.weights is not None else set()
        room = self.weights.room() if self.weights is not None else None
        for layer in self.graph.layers:
            expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
            _check_size(layer.name, expected)
            stored = self.weights.blobs_of(layer, room) if self.weights is not None and layer.name not in filled else []
            if stored and not layer.free_weights:
                layer.blobs = [s.reshape(e) for s, e in zip(stored, expected)]
            elif expected:
                self._random.append(layer.name)
                layer.blobs = fillers.fill(layer.name, expected, layer.fillers())
        if not self.trained:
            log.warning("%s: no caffemodel: %d layers have random weights", self._name, len(self._random))
        self._attached = True

    def _check_digest(self, weights: Path | None) -> None:
        expected = self.graph.weights_digest
        if expected is not None and weights is not None and digest(weights) != expected:
            text = "%s was quantised for other weights than %s: its formats may not fit them"
            log.warning(text, self.graph.path, weights)

    @property
    def _name(self) -> str:
        return self.graph.name or Path(self.graph.path).stem

    # -- plans and formats

    def planned(self, shapes: Mapping[str, Shape]) -> bool:
        return self._key(shapes) in self._executions

    def _key(self, shapes: Mapping[str, Shape]) -> tuple[Shape | None, ...]:
        """Return the sizes that determine all other shapes."""
        return tuple(map(shapes.get, self._sizing))

    def host(self, shapes: Mapping[str, Shape]) -> HostPass:
        if self._host is None or self._host.shapes is not shapes:
            self._host = HostPass(self.graph, shapes)
        return self._host

    def execution(self, shapes: Mapping[str, Shape], keep: Collection[str]) -> Execution:
        key = self._key(shapes)
        if key not in self._executions:
            from . import execution, folded  # not needed by a float network

            if len(self._executions) == SIZES:
                oldest = next(iter(self._executions))
                self._executions.pop(oldest).close()  # each has its own copy of the weights' codes
            planned = self._plan(shapes, self.formats)
            kept = {blob for blob in self.graph.latest.values() if blob in keep}
            away = folded.Folded(self.graph, planned.graph, planned.schedule, shapes, kept)
            self._executions[key] = execution.Execution(planned, self.device, away, self.basis is not None)
        return self._executions[key]

    def _plan(self, shapes: Mapping[str, Shape], formats: Mapping[str, Format] | None) -> Plan:
        """Return a Plan for these shapes; without ``formats`` only who runs where, before weights refuse anything."""
        from ..offload.planning import plan  # not needed by a float network

        assert self.overlay is not None
        check_weights(self.graph.layers, shapes)  # ``params`` may have been replaced
        trained = self.trained or not self._tentative
        planned = plan(self.graph, shapes, self.overlay, self._chosen, formats, trained, self._rewritten)
        if not self._read:  # else the program has the arrays, and may change them at any time
            self._rewritten = planned.graph
        return planned

    def calibrate(self, shapes: Mapping[str, Shape], batches: Iterable[Mapping[str, Array]], asked: bool) -> Written:
        from . import measuring

        plan = self._plan(shapes, None)
        choice = measuring.choose(self.graph, plan, batches, self._bits, self._scheme, not asked)
        self._set_formats(choice.formats)
        self.basis = choice.basis
        if self.basis is not None:
            more = f"; {self.basis.advice}" if self.basis.advice else ""
            (log.info if asked else log.warning)("%s brings no precision_param: %s%s", self._name, self.basis, more)
        elif signed := measuring.unsigned_dropped(plan):
            text = "%s: overlay %s has no unsigned codes; %d blobs are signed, in steps twice as wide"
            log.warning(text, self._name, plan.overlay.name, signed)
        return choice.shown

    def preview(self, shapes: Mapping[str, Shape]) -> None:
        from . import measuring

        if self.calibrated:
            return
        formats, final = measuring.placeholders(self._plan(shapes, None), self._bits, self._scheme)
        self._set_formats(formats)
        self._tentative = not (final and self.trained)

    def _set_formats(self, formats: Mapping[str, Format]) -> None:
        self.formats = formats
        self._tentative = False
        self._forget()

    def _forget(self) -> None:
        for execution in self._executions.values():
            execution.close()
        self._executions.clear()

    def close(self) -> None:
        self._forget()
        self._rewritten = None
        self._read.clear()
        for layer in self.graph.layers:
            layer.blobs = []
            layer.close()


def _check_size(name: str, expected: tuple[Shape, ...]) -> None:
    elements = sum(map(count, expected))
    if elements > limits().blob_elements:
        raise ModelError(f"layer {name!r}: its weights " + limits().exceeded("blob_elements", elements), layer=name)
