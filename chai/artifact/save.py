"""From a planned network to an artifact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..encoding import encode
from ..errors import UsageError
from ..image import Card
from ..lazy import np
from ..plan import Plan, plan
from ..plugins import CustomLayer
from ..schedule import Convert, DeviceStep, HostStep, Schedule
from . import container
from .values import plain

if TYPE_CHECKING:
    from ..execution import Execution
    from ..graph import Array, Layer
    from ..net import Net

CONSTANTS = 64  # bytes; the beginning of a Task's constants is a multiple of it


def save(net: Net, path: str | Path, card: Card | None = None) -> None:
    """Write what ``net`` runs at its present input sizes. Same network, same formats, same sizes: same bytes.

    ``card`` brings preprocessing and labels. Raises UsageError for a network without an overlay or without formats.
    """
    if net.overlay is None:
        raise UsageError(f"device {net.device.name} has no overlay to compile for", hint='Net(..., device="emulator")')
    if not net.calibrated:
        raise UsageError(
            f"{net.name} brings no precision_param and was not calibrated: its formats are not known",
            hint="--calibration FOLDER, or net.calibrate(images), or chai quantize",
        )
    execution = net.offload
    memory = plan(execution.schedule, execution.shapes, net.overlay)
    weights, sections = _Arrays(), {}
    blobs = {b for layer in execution.graph.layers for b in (*layer.bottoms, *layer.tops)} | {
        *execution.schedule.shapes
    }
    layers = {layer.name: _layer(layer, execution, weights) for layer in execution.graph.layers if not layer.source}
    tasks = _Tasks(execution, memory)
    steps = [_step(step, tasks) for step in execution.schedule.steps]
    card = card or Card()
    mean = card.preprocess.mean
    image = isinstance(mean, np.ndarray)
    preprocess = plain(replace(card.preprocess, mean=()) if image else card.preprocess)
    if image:
        preprocess["mean"] = weights.add(mean)
    header: dict[str, Any] = {
        "name": net.name,
        "overlay": {"name": net.overlay.name, "build": net.overlay.build},
        "inputs": list(execution.graph.inputs),
        "outputs": list(execution.graph.outputs),
        "latest": {name: blob for name, blob in execution.graph.latest.items() if blob in blobs},
        "shapes": {blob: list(shape) for blob, shape in execution.shapes.items() if blob in blobs},
        "formats": {blob: plain(format) for blob, format in execution.formats.items() if blob in blobs},
        "layers": layers,
        "order": list(layers),
        "steps": steps,
        "places": {blob: list(place) for blob, place in execution.schedule.places.items()},
        "plan": _plan(memory),
        "card": {"title": card.title, "labels": list(card.labels), "preprocess": preprocess},
    }
    sections["descriptors"] = b"".join(tasks.descriptors)
    sections["constants"] = tasks.constants()
    sections["weights"] = weights.bytes()
    container.write(path, header, sections)


def _layer(layer: Layer, execution: Execution, weights: _Arrays) -> dict[str, Any]:
    """A layer's entry; parameters and weights only of those that the host runs."""
    entry: dict[str, Any] = {
        "type": layer.type,
        "bottoms": list(layer.bottoms),
        "tops": list(layer.tops),
        "origin": list(layer.origin),
    }
    step = _host_step(execution.schedule, layer)
    if step is None:
        return entry
    entry["reason"] = step.reason
    entry["params"] = plain(layer.params)
    entry["blobs"] = [weights.add(blob) for blob in layer.blobs]
    for name in ("slope", "ceiling"):  # of a ReLU taken in
        if getattr(layer, name) is not None:
            entry[name] = getattr(layer, name)
    if layer.precision is not None:
        entry["precision"] = plain(layer.precision)
    if isinstance(layer, CustomLayer):
        values = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in layer.values.items()}
        entry["custom"] = {"version": layer.custom.version, "values": values}
    return entry


def _host_step(schedule: Schedule, layer: Layer) -> HostStep | None:
    return next((s for s in schedule.steps if isinstance(s, HostStep) and s.layer.name == layer.name), None)


def _step(step: Any, tasks: _Tasks) -> dict[str, Any]:
    if isinstance(step, Convert):
        return {"convert": step.kind, "blob": step.blob}
    if isinstance(step, HostStep):
        return {"host": step.layer.name, "codes": step.codes}
    assert isinstance(step, DeviceStep)
    made = [tasks.add(task) for task in step.tasks]
    layers = [layer.name for layer in step.layers]
    return {"tasks": made, "layers": layers, "reads": list(step.reads), "writes": list(step.writes)}


def _plan(memory: Plan) -> dict[str, Any]:
    blobs = {b: [p.offset, p.bytes, p.parent, p.first_channel] for b, p in memory.blobs.items()}
    return {"blobs": blobs, "peak": memory.peak, "total": memory.total}


class _Tasks:
    """Descriptors and constants, for activations at address 0 and constants at address 0."""

    def __init__(self, execution: Execution, memory: Plan) -> None:
        self.execution = execution
        self.address = memory.at(0)
        self.descriptors: list[bytes] = []
        self._constants = bytearray()

    def add(self, task: Any) -> dict[str, Any]:
        where = len(self._constants)
        overlay, shapes = self.execution.overlay, self.execution.shapes
        descriptor, constants = encode(task, overlay, self.address, shapes, where, tag=len(self.descriptors))
        self.descriptors.append(descriptor)
        self._constants += constants + bytes(-len(constants) % CONSTANTS)
        return {
            "inputs": list(task.inputs),
            "output": task.output,
            "origin": list(task.origin),
            "constants": [where, len(constants)],
        }

    def constants(self) -> bytes:
        return bytes(self._constants)


class _Arrays:
    """float32 arrays one behind the other, each from a multiple of 64 bytes on."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.end = 0

    def add(self, array: Array) -> dict[str, Any]:
        data = np.ascontiguousarray(array, np.float32).tobytes()
        entry = {"offset": self.end, "shape": list(array.shape)}
        padding = bytes(-len(data) % container.ALIGNMENT)
        self.parts += [data, padding]
        self.end += len(data) + len(padding)
        return entry

    def bytes(self) -> bytes:
        return b"".join(self.parts)
