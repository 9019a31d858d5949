"""Net: a network with persistent blobs, as in Caffe.

There is one Blob per blob name of the prototxt. Layers read and write these blobs in order, so an in-place layer
overwrites its bottom, ``forward(start=...)`` resumes from the current contents, and these persist between passes.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import WeakSet

from .. import net as chai_net
from ..blob import Array, Shape, batch_of, show
from ..errors import ModelError, UsageError
from ..graph import Layer
from ..offload.headroom import IMAGES
from ..parser.build import PHASES
from ..parser.caffemodel import Weights, check_fit, write_caffemodel
from ..passes.infer_shapes import Renewed, infer_shapes
from ..plugins.python.blob import BlobVec
from ..runtime.batches import ahead, numbers
from ..runtime.parameters import LentParameters
from ..runtime.perf import PerfInfo
from ..runtime.renewing import Renewing, Written
from ..runtime.steps.layers import check_weights, run_layer
from ..runtime.times import StepTime
from ..util.lazy_numpy import np
from ..util.suggest import did_you_mean
from . import hdf5
from .arguments import OPTIONS, missing
from .blob import Blob, NamedBlobs
from .losses import with_losses
from .mode import device_name
from .numbering import Numbering

TRAIN, TEST = 0, 1  # caffe.proto, enum Phase


class _Engine(chai_net.Net):
    """chai's Net, but layers missing from the caffemodel keep their filler values, as in Caffe."""

    _lacking: ClassVar[str] = "some"


@dataclass(frozen=True)
class LayerInfo:
    """An item of ``net.layers``: a layer's name, type and trained parameters."""

    name: str
    type: str
    blobs: BlobVec


class Net(Numbering):
    """``Net(prototxt, phase, weights=caffemodel)``, ``Net(prototxt, caffemodel, phase)`` or ``Net(prototxt, phase)``.

    ``blobs``    every blob by name, bottom to top; in place: one blob, with the last writer's numbers
    ``params``   the trained parameters by layer: lists of Blobs, weights before bias
    ``inputs``, ``outputs``   names of blobs; data layers count as inputs, but not the labels of losses
    ``bottom_names``, ``top_names``   names of blobs by layer
    ``layers``, ``layer_dict``        the layers in order, and by name
    ``net``      the chai.Net that runs the network; ``perf``: time per step of the last pass
    ``device``   overrides the current device (see ``set_device_name``); ``options`` are chai.Net's

    Python layers may be of modules that the program has imported.
    Layers without weights in the caffemodel keep their filler values, with one warning. Raises what chai.Net raises.
    """

    def __init__(
        self,
        network_file: str | Path,
        phase: int | str | Path = TEST,
        level: int | None = None,
        stages: Sequence[str] | None = None,
        weights: str | Path | None = None,
        *,
        device: str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(phase, (str, Path)):  # Caffe's older signature: prototxt, caffemodel, phase
            weights, phase, level = phase, TEST if level is None else level, 0
        if not isinstance(phase, (int, np.integer)) or phase not in (TRAIN, TEST):
            raise UsageError(f"phase {phase!r}: expected caffe.TEST or caffe.TRAIN")
        for name in options.keys() & {"prototxt", "caffemodel", "keep", *OPTIONS}:
            hint = OPTIONS.get(name, "Net(network_file, phase, weights=...) keeps all blobs")
            raise UsageError(f"Net has no option {name!r}", hint=hint)
        options = {"phase": PHASES[phase], "level": level or 0, "stages": stages or (), **options}
        stored = None if str(weights).endswith(".h5") else weights
        named = options.get("custom") or ()
        options["custom"] = [*(named if isinstance(named, (list, tuple)) else [named]), sys.modules]
        self.net = _Engine(network_file, stored, device or device_name(network_file), keep="all", **options)
        self.net.reshape()  # raises an error that names a missing input size
        self.perf = self.net.perf
        graph, shapes = with_losses(self.net)
        self._graph = graph
        unread = self.net.graph.unread
        self._labels = [b for b in graph.inputs if b not in self.net.inputs and b not in unread]
        self._optional = [*self._labels, *unread]
        self._names = {top: graph.caffe_name(top) for top in graph.writers}
        self.blobs = NamedBlobs((n, Blob(np.zeros(shapes[n], np.float32))) for n in graph.latest if n in shapes)
        self._layers = [LayerInfo(v.name, v.type, BlobVec(map(Blob, v.blobs), Blob)) for v in graph.layers]
        for layer in graph.layers:
            layer.lent = True  # by ``layers``
        declared = {top for layer in graph.layers if layer.type == "Input" for top in layer.tops}
        self.inputs = [*self.net.inputs, *(b for b in unread if b in declared)]  # as in Caffe, not those of data layers
        self.outputs = list(graph.outputs)
        self.bottom_names = OrderedDict((v.name, [self._names[b] for b in v.bottoms]) for v in graph.layers)
        self.top_names = OrderedDict((v.name, [self._names[t] for t in v.tops]) for v in graph.layers)
        self._sized: tuple[Any, dict[str, Shape]] = (None, {})
        self._asked = False
        self._sharing = WeakSet([self])  # the nets with the memory of these parameters
        self._states: dict[str, tuple[Array, ...]] = {}  # of recurrent layers, after the last pass
        if weights is not None and stored is None:
            self.load_hdf5(weights)

    @property
    def params(self) -> LentParameters:
        """Return trained parameters by layer. On an overlay, read this again before changing them after a pass.

        Raises UsageError for a .chai file, whose weights are packed for the overlay.
        """
        self._take_params(asked=True)
        return LentParameters({v.name: v.blobs for v in self._layers if v.blobs})

    @property
    def layers(self) -> list[LayerInfo]:
        """Return the layers in order. On an overlay, read this again before changing their parameters after a pass."""
        if self.net.overlay is not None:
            with suppress(UsageError):  # of a .chai file
                self._take_params(asked=True)
        return self._layers

    @property
    def layer_dict(self) -> OrderedDict[str, LayerInfo]:
        """Return the ``layers`` by name."""
        return OrderedDict((v.name, v) for v in self.layers)

    # -- running

    def forward(
        self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: Any
    ) -> dict[str, Array]:
        """Run the layers from ``start`` to ``end``, both included, on what the blobs hold.

        ``kwargs`` are arrays for all inputs, of the blobs' sizes; without them the inputs keep their contents. Returns
        the outputs (or the tops of ``end``) and ``blobs`` as views of the blobs' memory: copy what must outlive the next
        pass. Raises UsageError for names and sizes that do not fit; on an overlay, for a part of the network.
        """
        first = self._index(start) if start is not None else 0
        last = self._index(end) if end is not None else len(self._layers) - 1
        if first > last:
            raise UsageError(f"layer {start!r} comes after layer {end!r}")
        wanted = [*(self.outputs if end is None else self.top_names[end]), *self._chosen(blobs)]
        self._feed(kwargs)
        self._forward(first, last)
        return {name: self.blobs[name].data for name in wanted}

    def _forward(self, start: int, end: int) -> None:
        """Run the layers with these numbers, from ``start`` to ``end``. Raises UsageError as ``forward`` does."""
        if not 0 <= start <= end < len(self._layers):
            raise UsageError(
                f"_forward({start}, {end}): expected the numbers of two layers, 0 to {len(self._layers) - 1}"
            )
        self._size_labels()
        self._take_params()
        layers = self._graph.layers[start : end + 1]
        if self.net.overlay is None:
            self._run(layers)
        elif len(layers) < len(self._layers):
            raise UsageError(
                f"forward(start=, end=) on device {self.net.device.name}: only whole passes run there",
                hint='caffe.Net(..., device="float")',
            )
        else:
            self._run_on_overlay()

    def forward_all(self, blobs: Sequence[str] | None = None, **kwargs: Any) -> dict[str, Array]:
        """Run any number of items in batches of the net's size, the last padded with zeros; return copies, in order."""
        self._check_inputs(kwargs)
        arrays = {n: v if isinstance(v, np.ndarray) else numbers(n, v) for n, v in kwargs.items()}
        items = {len(a) if a.ndim else 0 for a in arrays.values()}
        if len(items) != 1 or 0 in items:
            raise UsageError(f"forward_all: expected the same number of items for every input, found {sorted(items)}")
        total, size = items.pop(), self._batch
        parts_of: dict[str, list[Array]] = {}
        self._take_params()
        first = {name: numbers(name, arrays[name][: max(size, IMAGES)]) for name in self.net.inputs}
        ahead(self.net, (first,), dict)
        for at in range(0, total, size):
            batch: dict[str, Any] = {n: a[at : at + size] for n, a in arrays.items()}
            pad = size - len(next(iter(batch.values())))
            batch = {n: np.concatenate([a, np.zeros((pad, *a.shape[1:]), a.dtype)]) for n, a in batch.items()}
            for name, value in self.forward(blobs, **batch).items():
                if value.shape[:1] != (size,):
                    raise UsageError(f"forward_all: blob {name!r} of {show(value.shape)} has not one row per item")
                parts_of.setdefault(name, []).append(value.copy())
        return {name: np.concatenate(parts)[:total] for name, parts in parts_of.items()}

    def backward(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UsageError: chai computes no gradients."""
        raise UsageError("chai runs networks forward, it does not train them: there is no backward")

    forward_backward_all = clear_param_diffs = backward

    def set_input_arrays(self, *_: Any) -> NoReturn:
        """Raise UsageError: data layers are inputs."""
        raise UsageError("set_input_arrays: data layers are inputs here", hint="net.forward(data=array, label=labels)")

    def reshape(self) -> None:
        """Resize every blob to match the current sizes of the inputs, as ``forward`` also does."""
        self._size_labels()
        if self.net.overlay is None:
            for layer in self._graph.layers:
                layer.renew()
            self._sized = (None, {})
            self._resize(self._graph.layers)
            return
        self.net.reshape(**{name: self.blobs[name].shape for name in self.net.inputs})
        for name, shape in self.net.shapes.items():
            self.blobs[name].reshape(*shape)

    # -- trained parameters

    def copy_from(self, weights: str | Path) -> None:
        """Load the parameters of a caffemodel, or of an .h5 file, by layer name; layers that it lacks keep theirs."""
        if str(weights).endswith(".h5"):
            self.load_hdf5(weights)
            return
        stored = Weights(weights)
        self._take_params(asked=True)
        kept = check_fit(self._graph, self._resize(self._graph.layers), stored, partial=True)
        for layer, graphs in zip(self._layers, self._graph.layers):
            arrays = stored.blobs_of(graphs) if layer.name not in kept else []
            if not arrays:
                continue
            if len(arrays) != len(layer.blobs):  # a custom layer accepts any number
                layer.blobs[:] = [Blob(a) for a in arrays]
            for blob, array in zip(layer.blobs, arrays):
                blob.data[...] = array.reshape(blob.shape)
        self._asked = True

    def share_with(self, other: Net) -> None:
        """Share the memory of the other net's parameters for layers of the same name."""
        if not isinstance(other, Net):
            raise UsageError(
                f"share_with: expected a caffe.Net, found {type(other).__name__}",
                hint="net.copy_from(file) reads a file",
            )
        self._take_params(asked=True)
        others = other.layer_dict
        for layer in self._layers:
            theirs = others[layer.name].blobs if layer.name in others else []
            if not theirs:
                continue
            if [b.shape for b in layer.blobs] != [b.shape for b in theirs]:
                mine, foreign = ([show(b.shape) for b in v] for v in (layer.blobs, theirs))
                raise UsageError(f"share_with: layer {layer.name!r} has parameters {mine}, in the other net {foreign}")
            for blob, source in zip(layer.blobs, theirs):
                blob.share(source)
        nets = self._sharing | other._sharing
        for net in nets:
            net._sharing = nets
        self._asked = True

    def save(self, path: str | Path) -> None:
        """Write the parameters as a caffemodel (V2, float); the file appears complete or not at all."""
        self._take_params(asked=True)
        rows = ((v.name, v.type, [b.data for b in v.blobs]) for v in self._layers)
        write_caffemodel(path, self._graph.name, rows)

    def save_hdf5(self, path: str | Path, write_diff: bool = False) -> None:
        """Write the parameters as Caffe's HDF5 file. Raises UsageError for gradients, and without h5py."""
        if write_diff:
            raise UsageError("chai computes no gradients: an HDF5 file has none")
        hdf5.write(path, ((name, [b.data for b in blobs]) for name, blobs in self.params.items()))

    def load_hdf5(self, path: str | Path) -> None:
        """Load the parameters of an HDF5 file by layer name; layers that it lacks keep theirs.

        Raises ParseError for a file that is none, ModelError for parameters of other shapes, UsageError without h5py.
        """
        params = self.params
        for name, arrays in hdf5.read(path, params).items():
            blobs = params[name]
            if [a.shape for a in arrays] != [b.shape for b in blobs]:
                stored, mine = ([show(b.shape) for b in v] for v in (arrays, blobs))
                raise ModelError(f"layer {name!r}: its parameters are {stored} in {path}, expected {mine}", layer=name)
            for blob, array in zip(blobs, arrays):
                blob.data[...] = array

    if not TYPE_CHECKING:  # it has no attributes of any name

        def __getattr__(self, name: str) -> NoReturn:
            raise missing("a net of pycaffe", name)

    def __repr__(self) -> str:
        return repr(self.net).replace("<chai.Net", "<chai.pycaffe.Net")

    # -- inside

    @property
    def _batch(self) -> int:
        return batch_of(self.blobs[name].shape for name in self.net.inputs)

    def _index(self, name: str) -> int:
        names = self._layer_names
        if not isinstance(name, str) or name not in names:
            raise self._no("layer", name, names)
        return names.index(name)

    def _chosen(self, blobs: Sequence[str] | None) -> Sequence[str]:
        """Return the names of blobs that a pass is to return, too. Raises UsageError for what are none."""
        chosen = () if blobs is None else blobs
        if isinstance(chosen, str) or not isinstance(chosen, Iterable) or not all(isinstance(n, str) for n in chosen):
            raise UsageError(
                f"forward: expected a list of names of blobs, found {type(blobs).__name__}",
                hint='net.forward(["conv1"]) returns that blob, too; net.forward(data=array) feeds an input',
            )
        for name in chosen:
            if name not in self.blobs:
                raise self._no("blob", name, self.blobs)
        return chosen

    def _no(self, what: str, name: str, known: Collection[str]) -> UsageError:
        hint = did_you_mean(str(name), known)
        return UsageError(f"there is no {what} {repr(name)[:60]} in {self._graph.path}", hint=hint)

    def _check_inputs(self, inputs: Mapping[str, Any]) -> None:
        if set(inputs).difference(self._optional) != set(self.net.inputs):
            raise UsageError(
                f"the arrays given ({', '.join(inputs) or 'none'}) are not the net's inputs ({', '.join(self.inputs)})"
            )

    def _size_labels(self) -> None:
        """Give the labels the size of the batch, as Caffe's data layers do."""
        for name in self._labels:
            label = self.blobs[name]
            if label.shape and label.shape[0] != self._batch:
                label.reshape(self._batch, *label.shape[1:])

    def _feed(self, inputs: Mapping[str, Any]) -> None:
        self._size_labels()
        if inputs:
            self._check_inputs(inputs)
        for name, values in inputs.items():
            blob, array = self.blobs[name], numbers(name, values)
            try:
                if array.ndim and array.shape[0] == blob.shape[0]:
                    blob.data[...] = array
                    continue
            except ValueError:
                pass
            raise UsageError(
                f"input {name!r} of {show(array.shape)} for a blob of {show(blob.shape)}",
                hint=f"net.blobs[{name!r}].reshape{array.shape} first",
            )

    def _take_params(self, asked: bool = False) -> None:
        """Update the layers whose parameters have new memory; on an overlay, also pick up values written in place.

        ``asked``: the caller may write into the parameters until the next pass. Raises UsageError for a .chai file.
        """
        for layer, info in zip(self._graph.layers, self._layers):
            if any(a is not b.data for a, b in zip(layer.blobs, info.blobs)) or len(layer.blobs) != len(info.blobs):
                layer.blobs = [b.data for b in info.blobs]
                self._sized = (None, {})
        if self._asked or asked:
            _ = self.net.params
            self._asked = False
            for net in self._sharing if asked else ():
                net._asked = True

    def _resize(self, layers: list[Layer], renewed: Renewed | None = None) -> dict[str, Shape]:
        """Resize the tops of these layers to match their current bottoms; return shapes by blob id. Raises ShapeError.

        ``renewed`` tops have other shapes in this pass than their layer's rule says.
        """
        computed = {top for layer in layers if not layer.source for top in layer.tops}
        others = {b for layer in layers for b in (*layer.bottoms, *layer.tops)} - computed
        inputs: dict[str, Shape | None] = {
            b: self.blobs[self._names[b]].shape for b in others if self._names[b] in self.blobs
        }
        key = layers[0].name, layers[-1].name, inputs
        if renewed or key != self._sized[0]:
            shapes = infer_shapes(replace(self._graph, layers=layers, inputs=inputs), renewed=renewed)
            check_weights(layers, shapes)
            self._sized = key, shapes
        for blob, shape in self._sized[1].items():
            self.blobs[self._names[blob]].reshape(*shape)
        return self._sized[1]

    def _run(self, layers: list[Layer]) -> None:
        """Run layers one by one: if one gives other sizes, those after it are planned again; none runs twice."""
        renewing, written = Renewing(layers), Written()
        self._resize(layers)
        started, steps = perf_counter(), []
        with np.errstate(all="ignore"):  # as in Caffe: an overflow gives inf, not a warning
            for layer in layers:
                if layer.source:
                    continue
                tops, step = renewing.planned(partial(self._run_layer, layers, layer, started, written))
                for top, value in zip(layer.tops, tops):
                    self.blobs[self._names[top]].put(value)
                steps.append(step)
        wall = (perf_counter() - started) * 1000
        alive = sum(blob.data.nbytes for blob in self.blobs.values())
        self.perf = PerfInfo(tuple(steps), wall, self._batch, alive, alive, composed=self._graph.composed)

    def _run_layer(
        self, layers: list[Layer], layer: Layer, started: float, written: Written
    ) -> tuple[tuple[Array, ...], StepTime]:
        """Run one of the layers on what its bottoms hold; if it gave its tops other sizes, the blobs have these."""
        shapes = self._resize(layers, written.sizes) if layer.name in written.sizes else self._sized[1]
        bottoms = [self.blobs[self._names[b]].data for b in layer.bottoms]
        resume = partial(self._resume, layer) if layer.carries_state else None
        return run_layer(layer, bottoms, shapes, started, resume, written)

    def _resume(self, layer: Layer, *bottoms: Array) -> tuple[Array, ...]:
        """Run a recurrent layer from its state after the last pass, as Caffe does."""
        tops, self._states[layer.name] = layer.resumed(bottoms, self._states.get(layer.name))
        return tops

    def _run_on_overlay(self) -> None:
        outputs = self.net.forward(**{name: self.blobs[name].data for name in (*self.net.inputs, *self._optional)})
        for name, value in outputs.items():
            self.blobs[name].put(value)
        blobs = self.net.blobs
        for name in blobs:
            if (reason := blobs.missing(name)) is None:
                self.blobs[name].put(blobs[name])
            else:
                self.blobs[name].withhold(reason)
        self.perf = self.net.perf
