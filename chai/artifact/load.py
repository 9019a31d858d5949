"""From an artifact to what runs it. Every word of the file is checked before anything is built of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import layers as types, overlay as overlays
from ..chain import Chain, head_bytes, tokens, wanted
from ..descriptor import value
from ..encoding import decode
from ..errors import DeviceError, ModelError, PluginError, UsageError
from ..fixed import SCHEMES, Format
from ..graph import Graph, Layer, Shape, check_shape, show
from ..image import Card, Preprocess
from ..lazy import np
from ..limits import limits
from ..params import Precision
from ..plugins import CustomLayer, CustomParams
from ..regions import FIXED, REGION, regions
from ..schedule import Convert, DeviceStep, HostStep, Schedule, Step
from . import container
from .values import restore

if TYPE_CHECKING:
    from ..graph import Array
    from ..overlay import Overlay
    from ..plugins import Registry


class Compiled(NamedTuple):
    """What an artifact holds, ready for an Execution."""

    graph: Graph
    shapes: dict[str, Shape]
    formats: dict[str, Format]
    schedule: Schedule
    card: Card


class OnDevice(Layer):
    """A layer that exists on the device only: what it does is in the Tasks."""

    on_device = True


class Input(Layer):
    """The inputs of the network."""

    source = True


def overlay_of(artifact: container.Artifact) -> str:
    """The name of the overlay that an artifact was made for. Raises DeviceError unless chai ships it: a file does not
    choose what else is read."""
    name: str = _Reader(artifact).get("overlay", {"name": str, "build": int})["name"]
    if name not in overlays.names():
        raise DeviceError(
            f"{artifact.path} was compiled for overlay {name[:40]!r}, which chai does not ship",
            hint="name its manifest: --overlay PATH/overlay.json",
        )
    return name


def load(artifact: container.Artifact, overlay: Overlay, custom: Registry) -> Compiled:
    """Everything in an artifact, for this overlay. Raises ParseError with the file's name for whatever ``save`` would not
    have written, DeviceError for another overlay, PluginError for a custom type that is not there."""
    made_for = _Reader(artifact).get("overlay", {"name": str, "build": int})
    if (made_for["name"], made_for["build"]) != (overlay.name, overlay.build):
        raise DeviceError(
            f"{artifact.path} was compiled for overlay {made_for['name']}, build {made_for['build']:08x}; "
            f"this is {overlay.name}, build {overlay.build:08x}",
            hint=f"compile it again: chai compile ... --overlay {overlay.name}",
        )
    try:
        return _Reader(artifact).compiled(overlay, custom)
    except (ModelError, DeviceError, UsageError) as error:
        raise artifact.error(error.message, error.hint) from error
    except RecursionError:
        raise artifact.error("its header is nested too deeply") from None


class _Reader:
    def __init__(self, artifact: container.Artifact) -> None:
        self.artifact = artifact
        self.header = artifact.header

    def get(self, key: str, kind: Any) -> Any:
        """A value of the header that has to be of this kind: a type, [kind], {str: kind} or {"key": kind, ...}."""
        if key not in self.header:
            raise self.artifact.error(f"header: {key!r} is missing")
        return self._of(self.header[key], kind, key)

    def _of(self, value: Any, kind: Any, where: str) -> Any:
        if isinstance(kind, list):
            if not isinstance(value, list):
                raise self.artifact.error(f"header: {where}: expected a list")
            return [self._of(v, kind[0], where) for v in value]
        if isinstance(kind, dict) and str in kind:
            if not isinstance(value, dict):
                raise self.artifact.error(f"header: {where}: expected an object")
            return {k: self._of(v, kind[str], where) for k, v in value.items()}
        if isinstance(kind, dict):
            if not isinstance(value, dict) or any(k not in value for k in kind):
                raise self.artifact.error(f"header: {where}: expected an object with {', '.join(kind)}")
            return {**value, **{k: self._of(value[k], inner, where) for k, inner in kind.items()}}
        if kind is not Any and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise self.artifact.error(f"header: {where}: expected {kind.__name__}, found {repr(value)[:40]}")
        return value

    # -- the whole

    def compiled(self, overlay: Overlay, custom: Registry) -> Compiled:
        shapes = {blob: self._shape(dims, blob) for blob, dims in self.get("shapes", {str: [int]}).items()}
        formats = {blob: self._format(f, blob) for blob, f in self.get("formats", {str: dict}).items()}
        inputs = self.get("inputs", [str])
        layers = self._layers(shapes, inputs, custom)
        written = {*inputs, *(t for layer in layers.values() for t in layer.tops)}
        places = self._places(shapes)
        joint = {whole: shapes[whole] for whole, _ in places.values() if whole not in written}  # of merged Tasks
        latest = self.get("latest", {str: str})
        outputs = self.get("outputs", [str])
        for blob in (*outputs, *latest.values(), *shapes):
            if blob not in written and blob not in joint:
                raise self.artifact.error(f"header: nobody writes blob {blob!r}")
        if not set(latest.values()).issuperset(outputs):
            raise self.artifact.error("header: 'latest' has no name for an output")
        source = Input("data", (), tuple(inputs), type="Input")
        graph = Graph(
            self.get("name", str),
            [source, *layers.values()],
            {b: shapes[b] for b in inputs},
            outputs,
            latest,
            path=self.artifact.path,
        )
        schedule = Schedule(list(self._steps(layers, shapes, formats, overlay, places)), places, joint)
        self._check_order(schedule, layers, inputs, outputs)
        return Compiled(graph, shapes, formats, schedule, self.card())

    def _shape(self, dims: list[int], blob: str) -> Shape:
        shape = tuple(dims)
        check_shape(Layer(blob, type="blob"), shape)
        return shape

    def _format(self, value: Any, blob: str) -> Format:
        format: Format = restore(Format, value, f"format of blob {blob!r}")
        if format.scheme not in SCHEMES or format.bits not in (8, 6) or not 0 <= abs(format.value) < 1e30:
            raise ModelError(f"format of blob {blob!r}: {format} does not exist")
        if format.scheme == "DynamicFixed" and not (format.value == int(format.value) and -32 <= format.value <= 64):
            raise ModelError(f"format of blob {blob!r}: fraction length {format.value:g}")
        return format

    def card(self) -> Card:
        """Title, labels and preprocessing."""
        card = self.get("card", {"title": str, "labels": [str], "preprocess": dict})
        preprocess = dict(card["preprocess"])
        mean = preprocess.pop("mean", [])
        made: Preprocess = restore(Preprocess, preprocess, "preprocess")
        value = self._array(mean) if isinstance(mean, dict) else self._mean(mean)
        made.with_options(resize=made.resize, crop=made.crop, channels=made.channels)  # they make sense
        return Card(card["title"], tuple(card["labels"]), replace(made, mean=value))

    def _mean(self, value: Any) -> float | tuple[float, ...]:
        """One number, or one per channel."""
        numbers = value if isinstance(value, list) else [value]
        found = tuple(restore(float, v, "mean") for v in numbers)
        return found if isinstance(value, list) else found[0]

    # -- layers

    def _layers(self, shapes: Mapping[str, Shape], inputs: list[str], custom: Registry) -> dict[str, Layer]:
        entries = self.get("layers", {str: {"type": str, "bottoms": [str], "tops": [str], "origin": [str]}})
        order = self.get("order", [str])
        if len(order) > limits().layers:
            raise self.artifact.error("too many layers: " + limits().exceeded("layers", len(order)))
        if sorted(order) != sorted(entries):
            raise self.artifact.error("header: order and layers do not name the same layers")
        made: dict[str, Layer] = {}
        known = set(inputs)
        for name in order:
            entry = entries[name]
            if not entry["origin"]:
                raise self.artifact.error(f"layer {name!r}: origin names no layer")
            for blob in (*entry["bottoms"], *entry["tops"]):
                if blob not in shapes:
                    raise self.artifact.error(f"layer {name!r}: the shape of blob {blob!r} is missing")
            if not known.issuperset(entry["bottoms"]) or not known.isdisjoint(entry["tops"]):
                raise self.artifact.error(f"layer {name!r} reads what nobody has written, or writes what is there")
            known.update(entry["tops"])
            made[name] = self._layer(name, entry, shapes, custom)
        if any(blob not in shapes for blob in inputs):
            raise self.artifact.error("header: the shape of an input is missing")
        return made

    def _layer(self, name: str, entry: dict[str, Any], shapes: Mapping[str, Shape], custom: Registry) -> Layer:
        bottoms, tops = tuple(entry["bottoms"]), tuple(entry["tops"])
        layer: Layer
        if "reason" not in entry:
            layer = OnDevice(name, bottoms, tops, type=entry["type"])
            layer.origin = tuple(entry["origin"])
            return layer
        where = f"layer {name!r} ({entry['type']})"
        arrays = self._of(entry.get("blobs", []), [{"offset": int, "shape": [int]}], where)
        blobs = [self._array(array) for array in arrays]
        if "custom" in entry:
            layer = self._custom(name, entry, custom)
            layer.bottoms, layer.tops = bottoms, tops
        else:
            cls = types.find(entry["type"])
            if cls is None:
                raise self.artifact.error(f"{where}: this chai does not know the type", hint="update chai")
            layer = cls(name, bottoms, tops, restore(cls.Params, entry.get("params", {}), where))
        layer.origin = tuple(entry["origin"])
        layer.blobs = blobs
        if "precision" in entry:
            layer.precision = restore(Precision, entry["precision"], where)
        for relu in ("slope", "ceiling"):
            if relu in entry:
                setattr(layer, relu, restore(float, entry[relu], f"{where}: {relu}"))
        self._check_layer(layer, shapes)
        return layer

    def _custom(self, name: str, entry: dict[str, Any], custom: Registry) -> Layer:
        about = self._of(entry["custom"], {"version": str, "values": dict}, name)
        params = restore(CustomParams, entry.get("params", {}), f"layer {name!r}")
        values = {k: tuple(v) if isinstance(v, list) else (v,) for k, v in about["values"].items()}
        made = custom.make(name, entry["type"], params, True, lambda: values, self.get("name", str))
        assert isinstance(made, CustomLayer)
        if made.custom.version != about["version"]:
            there, here = (v or "(none)" for v in (about["version"], made.custom.version))
            raise PluginError(
                f"{self.artifact.path}: layer {name!r} was compiled with version {there} of custom type {made.type!r}, "
                f"here is {here}",
                layer=name,
                hint="load the layer's file of that version, or compile the network again",
            )
        return made

    def _check_layer(self, layer: Layer, shapes: Mapping[str, Shape]) -> None:
        bottoms = tuple(shapes[b] for b in layer.bottoms)
        for what, (least, most), count in (
            ("bottoms", layer.bottoms_allowed, len(bottoms)),
            ("tops", layer.tops_allowed, len(layer.tops)),
        ):
            if count < least or (most is not None and count > most):
                raise self.artifact.error(f"layer {layer.name!r} ({layer.type}): {count} {what}")
        tops = layer.shapes(*bottoms)
        if tops != tuple(shapes[t] for t in layer.tops):
            raise self.artifact.error(
                f"layer {layer.name!r} ({layer.type}): its tops would be {', '.join(map(show, tops))}"
            )
        wanted = layer.weight_shapes(*bottoms)
        if not layer.free_weights and tuple(b.shape for b in layer.blobs) != tuple(wanted):
            raise self.artifact.error(
                f"layer {layer.name!r} ({layer.type}): its weights have other shapes than it needs"
            )

    def _array(self, entry: Mapping[str, Any]) -> Array:
        """A float32 array of the section "weights", where it lies."""
        shape = tuple(self._of(entry.get("shape"), [int], "array"))
        offset = self._of(entry.get("offset"), int, "array")
        data = self._section("weights").mapped
        size = 4 * prod(shape)
        if any(d < 0 for d in shape) or offset % 64 or offset < 0 or offset + size > len(data):
            raise self.artifact.error("header: an array lies outside the section 'weights'")
        array: Array = np.frombuffer(data, np.float32, prod(shape), offset).reshape(shape)
        return array

    def _section(self, name: str) -> container.Section:
        if name not in self.artifact.sections:
            raise self.artifact.error(f"section {name!r} is missing")
        return self.artifact.sections[name]

    # -- steps

    def _places(self, shapes: Mapping[str, Shape]) -> dict[str, tuple[str, int]]:
        found = {}
        for blob, place in self.get("places", {str: list}).items():
            if len(place) != 2 or not isinstance(place[0], str) or type(place[1]) is not int:
                raise self.artifact.error(f"header: place of blob {blob!r}")
            whole, first = place
            if blob not in shapes or whole not in shapes or len(shapes[blob]) != 4 or len(shapes[whole]) != 4:
                raise self.artifact.error(f"header: place of blob {blob!r}")
            inner, outer = shapes[blob], shapes[whole]
            if first < 0 or first + inner[1] > outer[1] or (inner[0], *inner[2:]) != (outer[0], *outer[2:]):
                raise self.artifact.error(f"header: blob {blob!r} does not fit its place in {whole!r}")
            found[blob] = (whole, first)
        for blob in found:
            seen, inside = set(), blob
            while inside in found:
                seen.add(inside)
                inside = found[inside][0]
                if inside in seen:
                    raise self.artifact.error(f"header: blob {blob!r} is a part of itself")
        return found

    def _steps(
        self,
        layers: Mapping[str, Layer],
        shapes: Mapping[str, Shape],
        formats: Mapping[str, Format],
        overlay: Overlay,
        places: Mapping[str, tuple[str, int]],
    ) -> Iterator[Step]:
        index = 0
        for step in self.get("steps", [dict]):
            if "convert" in step:
                kind, blob = step["convert"], step.get("blob")
                if kind not in ("Pack", "Unpack") or not isinstance(blob, str) or blob not in formats:
                    raise self.artifact.error(f"header: a conversion {kind!r} of blob {blob!r}")
                yield Convert(kind, blob, formats[blob])
            elif "host" in step:
                layer = layers.get(str(step["host"]))
                if layer is None or isinstance(layer, OnDevice):
                    raise self.artifact.error(f"header: the host shall run {step['host']!r}")
                codes = step.get("codes") is True
                if codes and not (isinstance(layer, CustomLayer) and {*layer.bottoms, *layer.tops} <= set(formats)):
                    raise self.artifact.error(f"header: layer {layer.name!r} cannot work on codes")
                yield HostStep(layer, str(self.header["layers"][layer.name]["reason"]), codes)
            else:
                about = self._of(
                    step, {"tasks": [dict], "layers": [str], "reads": [str], "writes": [str], "at": {str: int}}, "steps"
                )
                names = about["layers"]
                if not names or any(n not in layers for n in names):
                    raise self.artifact.error("header: a segment of layers that are not there")
                made = self._chain(index, about, shapes, overlay, places)
                index += 1
                edges = tuple(about["reads"]), tuple(about["writes"])
                yield DeviceStep(made.tasks, tuple(layers[n] for n in names), *edges, made)

    def _chain(
        self,
        index: int,
        about: Mapping[str, Any],
        shapes: Mapping[str, Shape],
        overlay: Overlay,
        places: Mapping[str, tuple[str, int]],
    ) -> Chain:
        """A segment's Tasks, of its descriptors and constants."""
        entries = [self._of(t, {"inputs": [str], "output": str, "origin": [str]}, "task") for t in about["tasks"]]
        moves = [(tuple(t["inputs"]), t["output"]) for t in entries]
        for blob in (*about["reads"], *about["writes"], *(b for ins, out in moves for b in (*ins, out))):
            if len(shapes.get(blob, ())) != 4:
                raise self.artifact.error(f"header: blob {blob!r} of a segment has not four axes")
        laid = regions(overlay.layout, shapes, places, moves, about["reads"], about["writes"], about["at"])
        size, head = overlay.descriptor.bytes, head_bytes(overlay, len(entries))
        listed = self._section(f"descriptors.{index}").content
        if len(listed) != len(entries) * size:
            raise self.artifact.error(f"section 'descriptors.{index}' has another number of Tasks than the header")
        descriptors = [listed[i * size : (i + 1) * size] for i in range(len(entries))]
        constants = self._section(f"constants.{index}")
        where = (FIXED << REGION) + head
        tasks = []
        for tag, (entry, (ins, out), descriptor) in enumerate(zip(entries, moves, descriptors)):
            used = {b: laid.blobs[b] for b in (*ins, out)}
            used |= {p.parent: laid.blobs[p.parent] for p in used.values() if p.parent is not None}
            task = decode(descriptor, constants, overlay, used, shapes, where)
            if not entry["origin"]:
                raise self.artifact.error(f"task {tag}: origin names no layer")
            if (task.inputs, task.output) != (ins, out):
                raise self.artifact.error(f"task {tag}: its descriptor works on other blobs than the header says")
            tasks.append(replace(task, origin=tuple(entry["origin"])))
        for tag, (descriptor, link) in enumerate(zip(descriptors, tokens(tasks))):
            found = [value(overlay.descriptor, descriptor, name) for name in ("tag", "wait", "signal")]
            if found != [tag, *link]:
                raise self.artifact.error(f"task {tag}: its descriptor has another place in the chain")
        return Chain(overlay, tuple(tasks), shapes, laid, wanted(laid, tasks, shapes), descriptors, [(head, constants)])

    def _check_order(
        self, schedule: Schedule, known: Mapping[str, Layer], inputs: list[str], outputs: list[str]
    ) -> None:
        """Every step finds what it reads, on its side; every layer runs once; every output arrives on the host."""
        host = set(inputs)
        device: set[str] = set()
        ran: set[str] = set()
        for step in schedule.steps:
            if isinstance(step, Convert):
                source, target = (host, device) if step.kind == "Pack" else (device, host)
                self._there([step.blob], source)
                target.add(step.blob)
                continue
            layers = (step.layer,) if isinstance(step, HostStep) else step.layers
            for layer in layers:
                if layer.name in ran:
                    raise self.artifact.error(f"header: layer {layer.name!r} runs twice")
                ran.add(layer.name)
            if isinstance(step, HostStep):
                side = device if step.codes else host
                self._there(step.layer.bottoms, side)
                side.update(step.layer.tops)
            else:
                self._there(step.reads, device)
                tops = {t for layer in step.layers for t in layer.tops}
                made = (b for task in step.tasks for b in _tops(task.output, schedule))
                if not tops.issuperset(made):
                    raise self.artifact.error("header: a segment has a Task of a layer that is not in it")
                device.update(b for read in step.reads for b in _with_it(read, schedule))
                for task in step.tasks:
                    self._there(task.inputs, device)
                    device.update(_with_it(task.output, schedule))
                self._there([*tops, *step.writes], device)
                device -= tops.difference(step.writes)  # nobody outside finds them
        self._there(outputs, host)
        for name in known:
            if name not in ran:
                raise self.artifact.error(f"header: layer {name!r} never runs")

    def _there(self, blobs: Any, known: set[str]) -> None:
        for blob in blobs:
            if blob not in known:
                raise self.artifact.error(f"header: a step needs blob {blob!r} where it is not")


def _tops(blob: str, schedule: Schedule) -> list[str]:
    """The layers' tops that a Task's output is: itself, or the parts of a joint one."""
    return (
        [part for part, (whole, _) in schedule.places.items() if whole == blob] if blob in schedule.shapes else [blob]
    )


def _with_it(blob: str, schedule: Schedule) -> Iterator[str]:
    """A blob that was written, the wholes it is a part of, and its own parts."""
    while True:
        yield blob
        yield from (part for part, (whole, _) in schedule.places.items() if whole == blob)
        if blob not in schedule.places:
            return
        blob = schedule.places[blob][0]
