"""Source of a Net's plans in files of Caffe or ONNX: its graph, its parameters and the Executions for its input sizes."""

from __future__ import annotations

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
from ..parser.stored import Stored
from ..passes.cut import cut_sized
from ..passes.infer_shapes import Renewed
from ..util.data import malloc
from ..zoo.card import Card
from ..zoo.card_file import read_card
from ..zoo.locate import locate, read_network
from .host.forward import HostPass
from .prototxt.formats import NetworkFormats
from .prototxt.parameters import Parameters
from .prototxt.plans import Plans
from .prototxt.sizing import Sizing
from .renewing import Shown

if TYPE_CHECKING:
    from ..devices.base import Device
    from ..images.pictures import Feed
    from ..offload.headroom import Basis
    from ..zoo.options import Options
    from .execution import Execution


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
        graph = cut_sized(graph, options.start_layer, options.end_layer, options.shapes or {})
    return graph, stored


class PrototxtSource:
    """A Graph from a prototxt and its caffemodel, or from an ONNX file; planned for each set of input sizes.

    A Net calls it in one thread at a time, and a ``CompiledSource`` in the same way. ``partial``: the caffemodel may lack the
    weights of some layers.

    ``graph``    its layers and blobs, as the Net shows them
    ``overlay``  None on a device that computes in float32
    """

    def __init__(self, options: Options, device: Device, partial: bool) -> None:
        self.graph, weights = _read(options)
        self.device = device
        self.overlay: Overlay | None = None
        self._parameters = Parameters(self.graph, weights, partial)
        scheme, model = SCHEMES[0], None  # of formats, if the network has none
        if device.fixed:
            self.overlay = load_overlay(default if options.overlay is None else options.overlay)
            scheme = self.overlay.scheme(options.scheme)
            self._arrange(self.overlay)
            model = placing(options.place, self.overlay.path)
        self._formats = NetworkFormats(self.graph, options.bits, scheme)
        self._sizing = Sizing(self.graph)
        self._plans = Plans(self._parameters, self._sizing, device, self.overlay, options.engine or {}, model)
        self._parameters.check_digest()

    def _arrange(self, overlay: Overlay) -> None:
        """Let the layers have the sizes that an overlay's arithmetic gives them."""
        if overlay.own is not None or overlay.arithmetic == EXACT:
            return
        from ..tasks.arithmetic import arithmetic  # no other overlay needs it before a plan

        for layer in self.graph.layers:
            layer.whole_windows = arithmetic(overlay).whole_windows

    @property
    def weights(self) -> Stored | None:
        """Return the caffemodel or ONNX file, if there is one."""
        return self._parameters.weights

    @property
    def formats(self) -> Mapping[str, Format] | None:
        """Return the formats of the blobs on the overlay; None before they are known."""
        return self._formats.by_blob

    @property
    def basis(self) -> Basis | None:
        """Return what they are based on, if they were measured."""
        return self._formats.basis

    @property
    def calibrated(self) -> bool:
        """Return whether the formats are final: the network's own, or measured."""
        return self._formats.calibrated

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

    def sized(self, sizes: Mapping[str, Shape], renewed: Renewed) -> dict[str, Shape]:
        """Prepare the layers for these inputs; return the shape of every blob. Raises ShapeError, UsageError.

        ``renewed`` tops have other shapes in a pass than their layer's rule says.
        """
        shapes = self._parameters.shapes(sizes, renewed)
        self._sizing.prepare(shapes, self.weights is None, malloc.claim if self.overlay is None else malloc.keep_freed)
        return shapes

    def planned(self, shapes: Mapping[str, Shape]) -> bool:
        """Return whether there is an Execution for these shapes already."""
        return self._plans.known(shapes)

    def execution(self, shapes: Mapping[str, Shape], keep: Collection[str]) -> Execution:
        """Return the Execution for batches of these shapes on the overlay."""
        return self._plans.execution(shapes, keep, self._formats)

    def host(self, shapes: Mapping[str, Shape]) -> HostPass:
        """Return what runs batches of these shapes without an overlay. Raises ShapeError."""
        return self._plans.host(shapes)

    def calibrate(
        self, shapes: Mapping[str, Shape], batches: Iterable[Mapping[str, Feed]], asked: bool
    ) -> Mapping[str, Shown]:
        """Choose the formats, measured on these inputs if the network brings none.

        If the caller ``asked`` only for a pass over them, return what custom layers wrote, which need not run again.
        """
        written = self._formats.choose(self._plans.plan(shapes), batches, asked)
        self._plans.replan()
        return written

    def preview(self, shapes: Mapping[str, Shape]) -> None:
        """Make a schedule before the first batch."""
        if not self.calibrated:
            self._formats.preview(self._plans.plan(shapes), self.trained)
            self._plans.replan()

    def params(self) -> dict[str, list[Array]]:
        """Return the trained parameters by layer; the arrays may be modified."""
        self._plans.reread()
        return self._parameters.lend()

    def replaced(self) -> bool:
        """Return whether there are other arrays in the lists of ``params``, which are read again then.

        Raises ShapeError for what is no array, and if there are more or fewer.
        """
        if not self._parameters.replaced():
            return False
        self.params()
        return True

    def close(self) -> None:
        """Release weights and device memory."""
        self._plans.reread()
        self._parameters.release()
