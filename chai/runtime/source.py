"""Source of a Net's plans in files of Caffe or ONNX: its graph, its parameters and the Executions for its input sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..blob import Array, Shape, batch_of
from ..errors import UsageError
from ..fixed import SCHEMES, Format
from ..graph import Graph
from ..overlay import EXACT, Overlay, default, load as load_overlay
from ..overlay.host_model import placing
from ..parser.caffemodel import Stored
from ..passes.cut import cut
from ..passes.infer_shapes import Renewed
from ..text import number_of
from ..util.data import malloc
from ..util.log import logger
from ..util.paths import stem
from ..zoo.card import Card
from ..zoo.card_file import read_card
from ..zoo.locate import locate, read_network
from .parameters import Parameters
from .renewing import Shown
from .steps.forward import HostPass
from .steps.layers import check_weights, claimed, prepare

if TYPE_CHECKING:
    from ..devices.base import Device
    from ..images.pictures import Feed
    from ..offload.headroom import Basis
    from ..offload.plan import Plan
    from ..zoo.options import Options
    from .execution import Execution

log = logger("chai")
SIZES = 4  # input sizes that stay prepared, and whose schedules are kept
Key = tuple[Shape | None, ...]


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


def _read(options: Options) -> tuple[Graph, Stored | None]:
    """Return the Graph of a network, or of the part of it that the options name, and its trained parameters."""
    path: Path | bytes | str = options.prototxt
    weights = None
    if not isinstance(path, bytes):
        path, weights = locate(path, options.caffemodel)
    elif options.caffemodel is not None:
        raise UsageError("the bytes of an ONNX file have its weights: a caffemodel cannot be given, too")
    how = {name: getattr(options, name) for name in ("custom", "phase", "level", "stages", "strict", "detect")}
    graph, stored = read_network(path, weights, options.shapes, **how)
    if options.start_layer or options.end_layer:
        graph = cut(graph, options.start_layer, options.end_layer, options.shapes or {})
    return graph, stored


class PrototxtSource:
    """A Graph from a prototxt and its caffemodel, or from an ONNX file; planned for each set of input sizes.

    A Net calls it in one thread at a time, and a ``CompiledSource`` in the same way. ``lacking``: as of ``Parameters``.

    ``graph``       its layers and blobs, as the Net shows them
    ``weights``     the caffemodel or ONNX file, if there is one
    ``overlay``     None on a device that computes in float32
    ``formats``     of the blobs on the overlay; None before there are any
    ``basis``       what they are based on, if they were measured
    ``calibrated``  whether they are final: the network's own, or measured
    """

    def __init__(self, options: Options, device: Device, lacking: str) -> None:
        self.graph, self.weights = _read(options)
        self.device = device
        self.overlay: Overlay | None = None
        self.formats: Mapping[str, Format] | None = None
        self.basis: Basis | None = None
        self.calibrated = False
        self._bits, self._scheme = options.bits, SCHEMES[0]  # of formats, if the network has none
        self._parameters = Parameters(self.graph, self.weights, lacking)
        self._chosen = dict(options.engine or {})  # the user's engines
        self._placing = None  # model by which segments that do not pay move to the host
        if device.fixed:
            self.overlay = load_overlay(default if options.overlay is None else options.overlay)
            self._scheme = self.overlay.scheme(options.scheme)
            if self.overlay.own is None and self.overlay.arithmetic != EXACT:
                from ..tasks.arithmetic import arithmetic  # no other overlay needs it before a plan

                for layer in self.graph.layers:
                    layer.whole_windows = arithmetic(self.overlay).whole_windows
            self._placing = placing(options.place, self.overlay.path)
        renewed = [top for layer in self.graph.layers if layer.renews for top in layer.tops]
        self._sized = [*self.graph.inputs, *renewed]  # the blobs that determine all other shapes
        self._prepared = deque[Key](maxlen=SIZES)
        self._executions: dict[Key, Execution] = {}
        # of all plans: the graph after the passes, with copies of the weights that these change, and its engines
        self._rewritten: tuple[Graph, Mapping[str, str]] | None = None
        self._host: HostPass | None = None  # for the shapes that were asked for last
        self._parameters.check_digest()
        if self.graph.unread_state and lacking != "some":  # a program for Caffe may name stages for all of its networks
            log.warning("%s: %s", self.graph.path, self.graph.unread_state)

    @property
    def trained(self) -> bool:
        """Return whether it has weights, or needs none."""
        return self._parameters.trained

    @cached_property
    def card(self) -> Card:
        """Return title, labels and preprocessing."""
        return read_card(self.graph.path)

    def batch(self, shapes: Mapping[str, Shape]) -> int:
        """Return the images per pass that need no padding."""
        return batch_of(shapes.get(blob, ()) for blob in self.graph.inputs)

    def _key(self, shapes: Mapping[str, Shape]) -> Key:
        return tuple(map(shapes.get, self._sized))

    def sized(self, sizes: Mapping[str, Shape], renewed: Renewed) -> dict[str, Shape]:
        """Prepare the layers for these inputs; return the shape of every blob. Raises ShapeError, UsageError.

        ``renewed`` tops have other shapes in a pass than their layer's rule says.
        """
        shapes = self._parameters.shapes(sizes, renewed)
        key = self._key(shapes)
        if key in self._prepared:
            self._prepared.remove(key)
        else:
            for layer in self.graph.layers:
                prepare(layer, shapes, self.weights is None)
            claim = malloc.claim if self.overlay is None else malloc.keep_freed
            claim(claimed(shapes))
        self._prepared.append(key)
        return shapes

    def planned(self, shapes: Mapping[str, Shape]) -> bool:
        """Return whether there is an Execution for these shapes already."""
        return self._key(shapes) in self._executions

    def execution(self, shapes: Mapping[str, Shape], keep: Collection[str]) -> Execution:
        """Return the Execution for batches of these shapes on the overlay."""
        key = self._key(shapes)
        if key not in self._executions:
            from . import execution, folded  # not needed by a float network

            if len(self._executions) == SIZES:
                oldest = next(iter(self._executions))
                self._executions.pop(oldest).close()  # each has its own copy of the weights' codes
            plan = self._plan(shapes, self.formats)
            kept = {blob for blob in self.graph.latest.values() if blob in keep}
            away = folded.Folded(self.graph, plan.graph, plan.schedule, shapes, kept)
            self._executions[key] = execution.Execution(plan, self.device, away, self.basis is not None)
        return self._executions[key]

    def _plan(self, shapes: Mapping[str, Shape], formats: Mapping[str, Format] | None = None) -> Plan:
        """Return a Plan for these shapes; without formats only who runs where, before weights refuse anything."""
        from ..offload.planning import plan, rewritten  # not needed by a float network

        assert self.overlay is not None
        check_weights(self.graph.layers, shapes)  # the arrays that are lent may have been replaced
        trained = self.trained or (formats is not None and self.calibrated)  # a schedule for display needs no weights
        graph, chosen = self._rewritten or rewritten(self.graph, self._chosen, self.overlay)
        if not self._parameters.lent:
            self._rewritten = graph, chosen
        return plan(graph, shapes, self.overlay, chosen, formats, trained, self._placing)

    def host(self, shapes: Mapping[str, Shape]) -> HostPass:
        """Return what runs batches of these shapes without an overlay. Raises ShapeError."""
        if self._host is None or self._host.shapes is not shapes:
            self._host = HostPass(self.graph, shapes)
        return self._host

    def calibrate(
        self, shapes: Mapping[str, Shape], batches: Iterable[Mapping[str, Feed]], asked: bool
    ) -> Mapping[str, Shown]:
        """Choose the formats, measured on these inputs if the network brings none.

        If the caller ``asked`` only for a pass over them, return what custom layers wrote, which need not run again.
        """
        from . import measuring  # not needed by a float network

        plan = self._plan(shapes)
        chosen = measuring.choose(self.graph, plan, batches, self._bits, self._scheme, not asked)
        (self.formats, self.basis, shown), self.calibrated = chosen, True
        name = self.graph.name or stem(self.graph.path)
        if self.basis is not None:
            more = f"; {self.basis.advice}" if self.basis.advice else ""
            (log.info if asked else log.warning)("%s brings no formats: %s%s", name, self.basis, more)
        elif signed := measuring.unsigned_dropped(plan):
            text = "%s: overlay %s has no unsigned codes; signed codes of %s, in steps twice as wide"
            log.warning(text, name, plan.overlay.name, number_of(signed, "blob"))
        self._replan()
        return shown

    def preview(self, shapes: Mapping[str, Shape]) -> None:
        """Make a schedule before the first batch: in the network's own formats, final ones if it is trained, or in any."""
        if not self.calibrated:
            from . import measuring

            self.formats, own = measuring.placeholders(self._plan(shapes), self._bits, self._scheme)
            self.calibrated = own and self.trained
            self._replan()

    def _replan(self) -> None:
        """Forget the Executions: they are for other formats."""
        for execution in self._executions.values():
            execution.close()
        self._executions.clear()

    def _reread(self) -> None:
        """Forget everything: it is for other weights."""
        self._replan()
        self._rewritten = self._host = None

    def params(self) -> dict[str, list[Array]]:
        """Return the trained parameters by layer; the arrays may be modified."""
        self._reread()
        return self._parameters.lend()

    def replaced(self) -> bool:
        """Return whether there are other arrays in the lists of ``params``, which are read again then.

        Raises ShapeError for what is no array, and if there are more or fewer.
        """
        if self.overlay is not None and not self._parameters.lent:  # the overlay has codes of them all
            return False
        if not self._parameters.replaced():
            return False
        self.params()
        return True

    def close(self) -> None:
        """Release weights and device memory."""
        self._reread()
        self._parameters.release()
