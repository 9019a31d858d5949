"""Load an artifact into the parts of an Execution. Everything in the file is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any

from .. import overlay as overlays
from ..blob import Shape, on_device
from ..errors import DeviceError, ModelError, UsageError
from ..fixed import VALUES, Coarser, Format
from ..graph import Arithmetic, Composed, Graph, Layer
from ..offload.plan import Partition, Plan, Segment
from ..offload.schedule import HostStep, Schedule, unfolded_name
from ..overlay import EXACT, Overlay
from ..runtime.steps.layers import claimed
from ..util.data.malloc import keep_freed
from . import layers, steps
from .container import Artifact

if TYPE_CHECKING:
    from pathlib import Path

    from ..images.preprocess import Preprocess
    from ..plugins.registry import Registry

    StoredCard = tuple[str, tuple[str, ...], Preprocess | None]

UNNAMED = "0.1.0"  # the version of chai whose files do not name it


class NetworkInputs(Layer):
    """The inputs of the network."""

    source = True


def overlay_of(file: Artifact, chosen: str | Path | None) -> Overlay:
    """Return the overlay that was ``chosen``, None for the one that an artifact was compiled for.

    Raises DeviceError unless chai ships that one: a file must not choose other files to read.
    """
    target = file.get("overlay", {"name": str, "build": int})
    if chosen is None and target["name"] not in overlays.names():
        what = f"{file.path} was compiled for overlay {target['name'][:40]!r}, which chai does not ship"
        raise DeviceError(what, hint="name its manifest: --overlay PATH/overlay.json")
    return overlays.load(target["name"] if chosen is None else chosen, build=target["build"])


def load(file: Artifact, overlay: Overlay, custom: Callable[[], Registry]) -> tuple[Plan, StoredCard]:
    """Return the plan in a file, for this overlay, and what it has of a card; ``custom`` is called if it has a custom layer.

    Raises ParseError with the file's name for anything that ``save`` would not have written, DeviceError for another
    overlay, PluginError for an unknown custom type.
    """
    made_for = file.get("overlay", {"name": str, "build": int})
    if (made_for["name"], made_for["build"]) != (overlay.name, overlay.build):
        there = f"{file.path} was compiled for overlay {made_for['name']}, build {made_for['build']:08x}"
        hint = f"compile it again: chai compile ... --overlay {overlay.name}"
        raise DeviceError(f"{there}; this is {overlay.name}, build {overlay.build:08x}", hint=hint)
    try:
        return _compiled(file, overlay, custom)
    except (ModelError, DeviceError, UsageError) as error:
        raise file.error(error.message, error.hint) from error
    except RecursionError:
        raise file.error("its header is nested too deeply") from None


def _compiled(file: Artifact, overlay: Overlay, custom: Callable[[], Registry]) -> tuple[Plan, StoredCard]:
    shapes = {blob: _shape(dims, blob) for blob, dims in file.get("shapes", {str: [int]}).items()}
    keep_freed(claimed(shapes) + sum(s.bytes for s in file.sections.values()))  # of passes, and of packed weights
    formats = {blob: _format(file, f, blob, overlay) for blob, f in file.get("formats", {str: dict}).items()}
    inputs = file.get("inputs", [str])
    own = _arithmetic(overlay)
    known_layers = layers.layers(file, shapes, inputs, custom, own is not None and own.whole_windows)
    written = {*inputs, *(t for layer in known_layers.values() for t in layer.tops)}
    coded = {blob: on_device(shape) for blob, shape in shapes.items()}
    views = steps.views(file, coded)
    joint = {whole: shapes[whole] for whole, _ in views.values() if whole not in written}  # of merged Tasks
    unfolds = steps.unfolds(file, overlay, shapes, inputs)
    joint.update((name, shapes[name]) for name in map(unfolded_name, unfolds))
    between = {blob: _format(file, f, blob, overlay) for blob, f in file.get("between", {str: dict}, {}).items()}
    for blob in between:
        if blob in written or blob not in shapes:
            raise file.error(f"header: blob {blob!r} cannot be between Tasks of one layer")
        joint[blob] = shapes[blob]
    latest = file.get("latest", {str: str})
    outputs = file.get("outputs", [str])
    folded = file.get("folded", {str: str})
    for blob in (*latest.values(), *shapes):
        if blob not in written and blob not in joint and blob not in folded:
            raise file.error(f"header: no layer writes blob {blob!r}")
    for blob, layer in folded.items():
        if blob in written or blob in joint or blob not in shapes or layer not in known_layers:
            raise file.error(f"header: blob {blob!r} cannot be folded into layer {layer!r}")
    if len(set(outputs)) != len(outputs) or any(latest.get(name) not in written for name in outputs):
        raise file.error("header: 'outputs' and 'latest' do not name the same blobs")
    if not latest.keys() >= set(inputs):
        raise file.error("header: 'inputs' and 'latest' do not name the same blobs")
    graph = Graph(
        file.get("name", str),
        [NetworkInputs("data", (), tuple(inputs), type="Input"), *known_layers.values()],
        {b: shapes[b] for b in inputs},
        outputs,
        latest,
        path=file.path,
        folded=folded,
        composed=_composed(file),
        counting=file.get("counting", str, ""),
        notes=[f"compiled by chai {file.get('chai', str, UNNAMED)[:40]}"],
    )
    packing, on_host = (lambda stored, _: stored, {}) if own is None else (own.packing, own.on_host)
    known = {**formats, **between}
    every = steps.StepReader(file, overlay, known_layers, coded, known, views, unfolds, inputs, packing, on_host).all()
    schedule = Schedule(list(every), views, joint, between)
    steps.check_order(file, schedule, known_layers, inputs, graph.output_blobs)
    plan = Plan(graph, shapes, overlay, formats, _partition(schedule), schedule, coarser=_coarser(file, known_layers))
    return plan, _card(file)


def _arithmetic(overlay: Overlay) -> type[Arithmetic] | None:
    """Return an overlay's arithmetic, None for the exact one, which most networks need not load."""
    if overlay.arithmetic == EXACT:
        return None
    from ..tasks.arithmetic import arithmetic

    return arithmetic(overlay)


def _partition(schedule: Schedule) -> Partition:
    """Return the segments (longest runs of steps on one engine) and the reasons for layers on the host."""
    steps = [step for step in schedule.steps if step.layers]  # without conversions
    runs = groupby(steps, lambda step: "host" if isinstance(step, HostStep) else "fpga")
    segments = [Segment(engine, [layer for step in run for layer in step.layers]) for engine, run in runs]
    return Partition(segments, {step.layer.name: step.reason for step in steps if isinstance(step, HostStep)})


def _coarser(file: Artifact, layers: Collection[str]) -> dict[str, Coarser]:
    """Return the layers with coarser weight steps."""
    steps_by_layer = {}
    for name, value in file.get("coarser", {str: list}).items():
        if name not in layers or len(value) != 2 or type(value[0]) is not int or type(value[1]) not in (int, float):
            raise file.error(f"header: coarser steps of layer {name!r}")
        steps_by_layer[name] = Coarser(*value)
    return steps_by_layer


def _composed(file: Artifact) -> dict[str, Composed]:
    """Return the composed layers of the prototxt, for reports; a file without any has no entry."""
    entries = file.get("composed", {str: {"type": str, "parts": [str]}}, {})
    return {name: Composed(entry["type"], tuple(entry["parts"])) for name, entry in entries.items()}


def _shape(dims: list[int], blob: str) -> Shape:
    shape = tuple(dims)
    Layer(blob, type="blob").check_top(shape)
    return shape


def _format(file: Artifact, value: Any, blob: str, overlay: Overlay) -> Format:
    format = file.restore(Format, value, f"format of blob {blob!r}")
    low, high = VALUES.get(format.scheme, (inf, inf))
    whole = format.scheme == "Xilinx" or format.value.is_integer()
    if format.bits not in (8, 6) or not (low <= format.value <= high and whole):
        raise ModelError(f"format of blob {blob!r}: {format} does not exist")
    if format.unsigned and not overlay.unsigned:
        raise ModelError(f"format of blob {blob!r}: {format}, but overlay {overlay.name} has no unsigned codes")
    return format


def _card(file: Artifact) -> StoredCard:
    """Return title, labels and preprocessing of the card; None for a file without the latter."""
    card = file.get("card", {"title": str, "labels": [str], "preprocess": dict})
    preprocess = _preprocess(file, card["preprocess"]) if card["preprocess"] else None
    return card["title"], tuple(card["labels"]), preprocess


def _preprocess(file: Artifact, stored: Mapping[str, Any]) -> Preprocess:
    """Return the preprocessing that a card in the header has. Raises ParseError, UsageError."""
    from ..images.preprocess import Preprocess  # for pictures, for which many files need nothing

    numbers: Any = float | tuple[float, ...]
    preprocess = dict(stored)
    mean = preprocess.pop("mean", [])
    settings = file.restore(Preprocess, preprocess, "preprocess")
    value = file.array(mean) if isinstance(mean, dict) else file.restore(numbers, mean, "mean")
    return replace(settings, mean=value)
