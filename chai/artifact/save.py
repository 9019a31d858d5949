"""Save a planned network as an artifact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import chai

from ..blob import Array, Shape, View
from ..codegen.chain import Piece, head_bytes
from ..codegen.compile import chain
from ..codegen.encoding import NOTES
from ..codegen.join_pooling import joined
from ..codegen.memory_map import FIXED
from ..errors import ChaiError, ModelError, UsageError
from ..graph import Layer
from ..offload.schedule import DeviceStep, HostStep, Pack, Step
from ..plugins.layer import CustomLayer
from ..plugins.registry import Registry
from ..runtime.execution import Execution
from ..runtime.source import Network
from ..tasks import Task
from ..tasks.conv import Conv
from ..util.data.dataclass_io import plain
from ..util.files import complete
from ..util.lazy_numpy import np
from ..zoo.card import Card
from . import container
from .load import load


def save(net: Network, path: str | Path, card: Card | None = None) -> None:
    """Write the plan of ``net`` for its current input sizes. Same network, same formats, same sizes: same bytes.

    The file is replaced atomically, after it was checked. ``card`` has preprocessing and labels. Raises UsageError for a
    network without an overlay or without formats.
    """
    if net.overlay is None:
        raise UsageError(f"device {net.device.name} has no overlay to compile for", hint='Net(..., device="emulator")')
    if not net.calibrated:
        hint = "--calibration FOLDER, or net.calibrate(images), or chai quantize"
        raise UsageError(f"{net.name} brings no formats and was not calibrated: its formats are not known", hint=hint)
    execution, graph = net.offload, net.offload.graph
    known = [layer for layer in graph.layers if not layer.source]
    weights, chains = _Arrays(), _Chains(execution)
    on_host = {step.layer.name: step for step in execution.schedule.steps if isinstance(step, HostStep)}
    layers = {layer.name: _layer(layer, on_host.get(layer.name), weights) for layer in known}
    blobs = {*graph.inputs, *execution.schedule.shapes}
    blobs.update(b for layer in known for b in (*layer.bottoms, *layer.tops))
    steps = [_step(step, chains) for step in execution.schedule.steps]
    shapes = {b: shape for b, shape in execution.shapes.items() if b in blobs or b in graph.folded}
    parts = {blob: execution.formats[view.base] for blob, view in chains.views.items()}  # of pooled blobs
    between = {**execution.schedule.between, **parts}
    card = card or Card()
    mean = card.preprocess.mean
    image = isinstance(mean, np.ndarray)
    preprocess = plain(replace(card.preprocess, mean=()) if image else card.preprocess)
    if image:
        preprocess["mean"] = weights.add(mean)
    header: dict[str, Any] = {
        "chai": chai.__version__,
        "name": net.name,
        "overlay": {"name": net.overlay.name, "build": net.overlay.build},
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "latest": {name: blob for name, blob in graph.latest.items() if blob in blobs or blob in graph.folded},
        "folded": graph.folded,
        "shapes": {blob: list(shape) for blob, shape in {**shapes, **chains.shapes}.items()},
        "formats": {blob: plain(format) for blob, format in execution.formats.items() if blob in blobs},
        "layers": layers,
        "order": list(layers),
        "steps": steps,
        "coarser": {name: [coarse.channels, coarse.decibels] for name, coarse in execution.plan.coarser.items()},
        "places": {blob: list(view) for blob, view in {**execution.schedule.views, **chains.views}.items()},
        "card": {"title": card.title, "labels": list(card.labels), "preprocess": preprocess},
    }
    if between:  # blobs that only Tasks of one layer write and read
        header["between"] = {blob: plain(format) for blob, format in between.items()}
    if graph.counting:
        header["counting"] = graph.counting
    if graph.composed:
        header["composed"] = {name: {"type": c.type, "parts": list(c.parts)} for name, c in graph.composed.items()}
    with complete(path) as part:
        container.write(part, header, {**chains.sections, "weights": weights.data})
        _check(part, net)


def _check(path: Path, net: Network) -> None:
    """Load the written file as any reader would. Raises ModelError if loading refuses it."""
    assert net.overlay is not None
    types = {layer.key: layer.custom for layer in net.offload.graph.layers if isinstance(layer, CustomLayer)}
    try:
        load(container.read(path), net.overlay, lambda: Registry(types))
    except ChaiError as error:
        what = f"{net.name} cannot be compiled: its file would be refused: {error.message}"
        hint = "this is a defect of chai: please report it with the prototxt; no file was changed"
        raise ModelError(what, hint=hint) from error


def _layer(layer: Layer, step: HostStep | None, weights: _Arrays) -> dict[str, Any]:
    """Return a layer's entry in the header. Only layers that run on the host have parameters and weights."""
    names = {"bottoms": layer.bottoms, "tops": layer.tops, "origin": layer.origin}
    entry: dict[str, Any] = {"type": layer.type, **{key: list(value) for key, value in names.items()}}
    if step is None:
        return entry
    entry["reason"] = step.reason
    entry["params"] = plain(layer.params)
    entry["blobs"] = [weights.add(blob) for blob in layer.blobs]
    for name in ("slope", "ceiling"):  # of a fused ReLU
        if getattr(layer, name) is not None:
            entry[name] = getattr(layer, name)
    if layer.precision is not None:
        entry["precision"] = plain(layer.precision)
    if isinstance(layer, CustomLayer):
        values = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in layer.values.items()}
        entry["custom"] = {"type": layer.key, "version": layer.custom.version, "values": values}
    return entry


def _step(step: Step, chains: _Chains) -> dict[str, Any]:
    if isinstance(step, HostStep):
        return {"host": step.layer.name, "codes": step.codes}
    if not isinstance(step, DeviceStep):
        unfold = {"unfold": step.unfold._asdict()} if isinstance(step, Pack) and step.unfold is not None else {}
        return {"convert": step.type, "blob": step.blob, **unfold}
    layers = [layer.name for layer in step.layers]
    edges = {"reads": list(step.inputs), "writes": list(step.outputs)}
    return {**chains.add(step), "layers": layers, **edges}


class _Chains:
    """Sections that a device fetches: for each segment one of descriptors or instructions, and one of constants."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.sections: dict[str, bytes | Array] = {}
        self.shapes: dict[str, Shape] = {}  # of blobs that no layer and no plan has, parts of those in ``views``
        self.views: dict[str, View] = {}

    def add(self, step: DeviceStep) -> dict[str, Any]:
        """Add the two sections of a segment; return what the header says of its Tasks and of its memory."""
        overlay, views = self.execution.overlay, self.execution.schedule.views
        shapes, index = self.execution.plan.device_shapes, len(self.sections) // 2
        work = step.work(overlay, shapes, views)
        if overlay.own is not None:
            program, entries = overlay.own.segment(work), [_entry(task) for task in step.tasks]
            counts, sections = overlay.own.saved(program)
            for entry, task, instructions, cycles in zip(entries, step.tasks, counts, program.spent):
                entry["channels"] = list(task.channels(shapes))
                entry["macs"] = task.macs(*(shapes[blob] for blob in task.inputs))
                entry["cycles"] = cycles
                entry["instructions"] = instructions
            self.sections |= {f"{name}.{index}": data for name, data in sections.items()}
            return {"tasks": entries, "at": program.regions.offsets}
        segment = chain(work)
        parts = joined(work)
        self.views |= {blob: view for blob, view in parts.views.items() if blob not in views}
        self.shapes |= {blob: parts.shapes[blob] for blob in self.views if blob in parts.shapes}
        self.sections[f"descriptors.{index}"] = b"".join(segment.descriptors)
        fixed = np.empty(segment.sizes[FIXED], np.uint8)
        segment.fill(fixed)
        self.sections[f"constants.{index}"] = fixed[head_bytes(overlay, len(segment.tasks)) :]
        whole = segment.whole
        pieces = [_numbers(piece, segment.shapes[whole[piece.task].output]) for piece in segment.pieces]
        return {"tasks": [_entry(task) for task in whole], "pieces": pieces, "at": segment.regions.offsets}


def _numbers(piece: Piece, output: Shape) -> list[int]:
    """Return what the header says of a piece: its Task, images, and rows and columns if they are not all."""
    batch, _, *size = output
    parts = [piece.rows or (0, size[0]), piece.columns or (0, size[1])] if piece.rows or piece.columns else []
    return [piece.task, *(number for pair in (piece.images or (0, batch), *parts) for number in pair)]


def _entry(task: Task) -> dict[str, Any]:
    """Return what the header says of a Task."""
    entry = {"inputs": list(task.inputs), "output": task.output, **{name: plain(getattr(task, name)) for name in NOTES}}
    if isinstance(task, Conv) and task.pooling is not None:
        entry["pooled"] = {name: plain(getattr(task.pooling, name)) for name in ("blob", "origin", "at")}
    return entry


class _Arrays:
    """Consecutive float32 arrays, each aligned to 64 bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, array: Array) -> dict[str, Any]:
        entry = {"offset": len(self.data), "shape": list(array.shape)}
        self.data += np.ascontiguousarray(array, np.float32).tobytes()
        self.data += bytes(-len(self.data) % container.ALIGNMENT)
        return entry
