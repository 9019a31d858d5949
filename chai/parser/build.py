"""Build a Graph from layer messages: phase rules, wiring, parameters."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import layers
from ..errors import ChaiError, ModelError, ParseError, UnknownLayer
from ..graph import Graph, Layer
from ..graph.params import LossParams
from ..graph.source import SourceLayer, Transform
from ..limits import limits
from ..plugins.loading import chosen
from ..plugins.registry import Registry
from ..tasks.precision import Precision
from ..util.suggest import did_you_mean, nearest
from .assign import message_of
from .message import Message, fill, parameters
from .upgrade import of_python

if TYPE_CHECKING:
    from .compose import Share

PHASES = ("TRAIN", "TEST")
OPTIONS = 4  # that a hint names at most


class NetState:
    """Phase, level and stages, which include and exclude rules test."""

    def __init__(self, phase: str = "TEST", level: int = 0, stages: Sequence[str] = ()) -> None:
        if phase not in PHASES:
            raise ModelError(f"phase {phase!r} does not exist; expected TRAIN or TEST")
        self.phase = phase
        self.level = level
        self.stages = {stages} if isinstance(stages, str) else set(stages)

    def __str__(self) -> str:
        return f"phase {self.phase}" + (f" and stage {', '.join(sorted(self.stages))}" if self.stages else "")

    def meets(self, rule: Message) -> bool:
        """Return whether every condition of a NetStateRule holds (Caffe: StateMeetsRule)."""
        return (
            rule.get("phase", self.phase) == self.phase
            and rule.get("min_level", self.level) <= self.level <= rule.get("max_level", self.level)
            and self.stages.issuperset(rule.all("stage"))
            and self.stages.isdisjoint(rule.all("not_stage"))
        )

    def unread(self, messages: Iterable[Message]) -> str:
        """Return in words which stages, or that the level, no rule of these layers reads; "" if all are read."""
        rules = [rule for message in messages for kind in ("include", "exclude") for rule in message.all(kind)]
        known = {stage for rule in rules for kind in ("stage", "not_stage") for stage in rule.all(kind)}
        texts = [f"stage {stage!r}" for stage in sorted(self.stages - known)]
        if self.level and not any(rule.has(bound) for rule in rules for bound in ("min_level", "max_level")):
            texts.append(f"level {self.level}")
        if not texts:
            return ""
        stages = f"; stages of the file: {', '.join(sorted(known))}" if known else ""
        return f"no include or exclude rule is for {', '.join(texts)}{stages}"

    def needed(self, layer: Message) -> list[str]:
        """Return the options with which a layer that is left out would belong to the network, as alternatives."""
        rules, other = layer.all("include"), PHASES[self.phase == PHASES[0]]
        if not rules:
            meant = NetState(other, self.level, [*self.stages]).includes(layer)
            return [f"--phase {other}"] * meant
        options = []
        for rule in rules:
            level = max(self.level, rule.get("min_level", self.level))
            level = min(level, rule.get("max_level", level))
            more = [f"--stage {shlex.quote(stage)}" for stage in rule.all("stage") if stage not in self.stages]
            more += [f"--phase {other}"] * (rule.get("phase", self.phase) == other)
            more += [f"Net(level={level})"] * (level != self.level)
            if more and level >= rule.get("min_level", level) and self.stages.isdisjoint(rule.all("not_stage")):
                options.append(" ".join(more))
        return options

    def includes(self, layer: Message) -> bool:
        include, exclude = layer.all("include"), layer.all("exclude")
        if include and exclude:
            name = layer.get("name", "")
            raise layer.error(f"layer {name!r} has include and exclude rules; it can have one kind", "exclude")
        if include:
            return any(self.meets(rule) for rule in include)
        return not any(self.meets(rule) for rule in exclude)


def build(net: Message, messages: list[Message], state: NetState, custom: Registry) -> Graph:
    """Return the Graph of a network in one state. Raises ParseError or ModelError, each naming layer and line."""
    source = net.source
    if not messages:
        solver = {field.name for field in net.unknown} & {"base_lr", "net", "train_net", "solver_mode", "max_iter"}
        hint = "this is a solver; give the network it names (net: ...)" if solver else None
        raise ParseError("no layer in this file, expected a network", path=source.path, hint=hint)
    if len(messages) > limits().layers:
        raise ParseError("too many layers: " + limits().exceeded("layers", len(messages)), path=source.path)
    graph = Graph(net.get("name", ""), [], {}, [], {}, path=source.path, unread_state=state.unread(messages))
    wiring = _Wiring(graph, state)
    for message in messages:
        if state.includes(message):
            message = wiring.numbered(message)
            for part, shares in _parts(graph, message, custom):
                if part is not message:
                    wiring.claim(part)
                layer = _make(part, custom, graph.name or Path(source.path).stem, state.phase)
                layer.shares = shares
                wiring.add(part, layer)
        else:
            for top in message.all("top"):
                wiring.left_out.setdefault(top, []).append(message)
    wiring.finish()
    return graph


def _parts(graph: Graph, message: Message, custom: Registry) -> Sequence[tuple[Message, tuple[Share, ...]]]:
    """Return the layers that a composed layer is made of, which is recorded in the graph; else the layer itself."""
    type, flagged, name = message.get("type"), bool(message.get("user_defined_layer")), message.get("name", "")
    definition = None if not type or (message.has("python_param") and not flagged) else chosen(custom, type, flagged)
    if definition is None or not definition.composed:
        return [(message, ())]
    from .compose import Expanded

    with _located(message):
        expanded = Expanded(message, _place(message), definition, custom, limits().layers - len(graph.layers))
    graph.composed[name] = expanded.record
    return expanded.messages


@contextmanager
def _located(message: Message) -> Iterator[None]:
    """Add a layer's name and place to errors."""
    name = message.get("name", "")
    try:
        yield
    except ParseError as error:
        error.layer = error.layer or name
        if error.layer == name and repr(name) not in error.message:
            error.message = f"layer {name!r} ({message.get('type')}): {error.message}"
        raise
    except ChaiError as error:
        error.message = f"{_place(message)}: {error.message}"
        raise


def _place(message: Message) -> str:
    """Return path:line of a layer."""
    return message.source.place(_position(message)[0])


def _position(message: Message) -> tuple[int, int]:
    """Return the offsets of a layer's name, else of its type."""
    where = message.values.get("name", message.values.get("type"))
    return (where[0].start, where[0].end) if where else (message.start, message.start + 1)


def _make(message: Message, custom: Registry, network: str, phase: str) -> Layer:
    name = message.get("name", "")
    start, end = _position(message)
    source = message.source
    type = message.get("type")
    if not type:
        raise source.error(f"layer {name!r} has no type", start, end, layer=name)
    ports = max(len(message.all("bottom")), len(message.all("top")))
    if len(name) > limits().name_length or ports > limits().ports:
        limit, size = ("ports", ports) if ports > limits().ports else ("name_length", len(name))
        raise source.error("this layer is too large: " + limits().exceeded(limit, size), start, end)
    flagged = bool(message.get("user_defined_layer"))
    cls = None if flagged or custom.overrides(type) else layers.find(type)
    layer: Layer | None
    with _located(message):
        if cls is None:
            from ..plugins.layer import CustomParams, make  # which few networks need

            params = fill(CustomParams, message.get("xcustom_param"))
            code = None if flagged else message.get("python_param")
            key = type if code is None else f"{code.get('module', '')}.{code.get('layer', '')}"
            phase_number = PHASES.index(message.get("phase", phase))
            fields = partial(parameters, message, {"phase": (phase_number,)} if code is not None else {})
            layer = make(custom, network, name, type, key, params, fields, flagged)
            if layer is None and code is not None and (known := of_python(code)) is not None:
                cls = layers.find(known.type)
                assert cls is not None
                layer = cls(name, params=fill(cls.Params, known))
            if layer is None:
                what, hint = f"layer {name!r}: type {type!r} has no definition here", _near(type)
                if code is not None:
                    what += f"; it is {code.get('layer', '')} of the Python module {code.get('module', '')!r}"
                    hint = "name the file or folder that has this module: --custom, CHAI_CUSTOM or Net(custom=...); "
                    hint += "a program for chai.pycaffe may import it instead; no other place is searched"
                raise UnknownLayer(what, layer=name, hint=hint)
        else:
            own = message_of(type)
            layer = cls(name, params=fill(cls.Params, message.get(own) if own else None))
            if layer.training_only:
                layer.loss = fill(LossParams, message.get("loss_param"))
        precision = message.get("precision_param") or message.get("quantization_param")  # the latter: Ristretto's name
        layer.precision = fill(Precision, precision) if precision is not None else None
    layer.place = _place(message)
    # of a V1 layer they are texts
    layer.shared = tuple(p.get("name", "") if isinstance(p, Message) else p for p in message.all("param"))
    return layer


def _near(type: str) -> str:
    known = layers.types()
    near = [k for k in known if k.lower() == type.lower()] or nearest(type, known, 3, 0.7)
    mine = 'to define it yourself: @chai.custom("' + type + '") and user_defined_layer: true'
    return f"did you mean {' or '.join(near)}? or, {mine}" if near else f"{mine} (chai layers lists the known types)"


class _Wiring:
    """Gives every top a unique id and resolves which blob each bottom reads."""

    def __init__(self, graph: Graph, state: NetState) -> None:
        self.graph = graph
        self.losses = replace(graph, layers=[], inputs={}, outputs=[], latest={}, notes=[], composed={})
        self.state = state
        self.written: dict[str, Layer] = {}
        self.read: set[str] = set()
        self.compared: set[str] = set()  # what losses read, also those that are not computed
        self.dropped: dict[str, str] = {}  # Caffe name of a dropped top -> its layer
        self.left_out: dict[str, list[Message]] = {}  # Caffe name of a top -> layers that their rules leave out
        self.names: set[str] = set()
        self.repeats = Counter[str]()

    def numbered(self, message: Message) -> Message:
        """Return a layer with a name of its own: the second of a name, which Caffe allows, gets a number."""
        name = unique = message.get("name", "")
        while unique in self.names:
            self.repeats[name] += 1
            unique = f"{name} ({self.repeats[name] + 1})"
        self.names.add(unique)
        return message if unique == name else message.with_text("name", unique)

    def claim(self, message: Message) -> None:
        """Refuse a part of a composed layer with the name of another layer."""
        name = message.get("name", "")
        if name in self.names:
            raise self._error(message, f"layer name {name!r} is used twice", "name")
        self.names.add(name)

    def add(self, message: Message, layer: Layer) -> None:
        """Connect a layer, and add it to the network or to its losses."""
        bottoms, tops = message.all("bottom"), message.all("top")
        late = layer.training_only or not self.losses.latest.keys().isdisjoint(bottoms)
        latest = {**self.graph.latest, **self.losses.latest} if late else self.graph.latest
        if late:
            self.compared.update(latest[b] for b in bottoms if b in latest)
        if late and (layer.skipped or not latest.keys() >= set(bottoms)):
            self.dropped.update((t, layer.name) for t in tops if t not in bottoms)
            return
        if wrong := layer.miscounted(len(bottoms), len(tops)):
            raise self._error(message, f"layer {layer.name!r} ({layer.type}) {wrong[1]}", wrong[0])
        for i, name in enumerate(bottoms):
            if name not in latest:
                what = f"layer {layer.name!r} reads blob {name!r}, which {self._missing(name)}"
                raise self._error(message, what, "bottom", i, self._hint(self.left_out.get(name, [])))
        layer.bottoms = tuple(latest[b] for b in bottoms)
        ids = []
        for i, name in enumerate(tops):
            if name in latest and name not in bottoms:
                other = self.written[latest[name]].name
                what = f"layer {layer.name!r} writes blob {name!r}, which layer {other!r} has written"
                raise self._error(message, what, "top", i)
            blob = name if name not in latest else f"{name}@{layer.name}"
            while blob in self.written:
                blob += "@"
            if name in tops[:i]:
                raise self._error(message, f"layer {layer.name!r} has two tops called {name!r}", "top", i)
            self.written[blob] = layer
            ids.append(blob)
        layer.tops = tuple(ids)
        graph = self.losses if late else self.graph
        graph.latest.update(zip(tops, ids))
        graph.layers.append(layer)
        if not late:
            self.read.update(layer.bottoms)
        if layer.source:
            self._inputs(message, layer)

    def _inputs(self, message: Message, layer: Layer) -> None:
        assert isinstance(layer, SourceLayer)
        transform = message.get("transform_param")
        layer.transform = fill(Transform, transform) if transform is not None else None
        with _located(message):
            declared = layer.declared()
        for top, shape in zip(layer.tops, declared):
            self.graph.inputs[top] = shape
            if layer.transform is not None:
                self.graph.transforms[top] = layer.transform
        self.graph.notes += layer.notes

    def finish(self) -> None:
        graph, losses = self.graph, self.losses
        own = [b for layer in graph.layers for b in layer.tops]
        unread = [b for b in own if b not in self.read]
        labels = {b: graph.inputs.pop(b) for b in unread if self.written[b].source}  # at most losses read these
        graph.unread = {b: shape for b, shape in labels.items() if b not in self.compared}
        names = {blob: name for name, blob in graph.latest.items()}
        graph.outputs = [names[b] for b in unread if b not in labels]
        if all(layer.source for layer in graph.layers):
            hint = self._hint(layer for layers in self.left_out.values() for layer in layers)
            hint = hint or "a network has layers that compute something; are include or exclude rules in the way?"
            what = f"{graph.path}: nothing is computed in {self.state}: no layer reads an input"
            raise ModelError(what, hint=hint)
        if losses.layers:
            read = {b for layer in losses.layers for b in layer.bottoms}
            losses.inputs = {b: shape for b, shape in labels.items() if b in read}
            names = {blob: name for name, blob in losses.latest.items()}
            losses.outputs = [names[t] for layer in losses.layers for t in layer.tops if t not in read]
            graph.losses = losses
            waits = f", computed if {', '.join(losses.inputs)} are fed" if losses.inputs else ""
            graph.notes.append(f"losses and measures{waits}: {', '.join(layer.name for layer in losses.layers)}")
        if self.repeats:
            graph.notes.append(f"layer names used more than once, with numbers here: {', '.join(self.repeats)}")
        if self.dropped:
            graph.notes.append(f"losses and measures dropped: {', '.join(sorted(set(self.dropped.values())))}")

    def _hint(self, left_out: Iterable[Message]) -> str | None:
        options = dict.fromkeys(option for layer in left_out for option in self.state.needed(layer))
        some = [*options][:OPTIONS]
        return f"add {' or '.join(some)}{' or another stage' * (len(options) > OPTIONS)}" if some else None

    def _missing(self, name: str) -> str:
        if name in self.dropped:
            return f"layer {self.dropped[name]!r} would write, but losses of its type are not computed"
        if name in self.left_out:
            writer = self.left_out[name][0].get("name", "")
            return f"layer {writer!r} would write, but its rules leave it out in {self.state}"
        near = did_you_mean(name, self.graph.latest)
        return "no layer above writes" + (f" ({near})" if near else "")

    def _error(self, message: Message, text: str, field: str, index: int = 0, hint: str | None = None) -> ParseError:
        field = next(name for name in (field, "name", "type") if message.values.get(name))
        return message.error(text, field, min(index, len(message.values[field]) - 1), hint)
