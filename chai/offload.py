"""A network split between an overlay and the host, for one set of input sizes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from .devices.base import Device, Program
from .fixed import Format
from .graph import Graph, Shape, show
from .lazy import np
from .lowering import Target
from .overlay import Overlay
from .partition import Partition, partition
from .passes import rewrite
from .perf import PerfInfo, StepTime
from .schedule import Convert, DeviceStep, HostStep, Schedule, lower, schedule

if TYPE_CHECKING:
    from .graph import Array

log = logging.getLogger("chai.offload")


class Offload:
    """Partition, Schedule and compiled Programs of a network.

    ``formats``  of every blob, by blob id of the rewritten graph; None to look only at what the overlay can run
    ``chosen``   the user's engines, layer -> host or fpga
    ``keep``     ids of blobs that must stay as the prototxt says them
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Shape],
        overlay: Overlay,
        device: Device,
        chosen: Mapping[str, str],
        keep: Collection[str],
        formats: Mapping[str, Format] | None,
    ) -> None:
        self.graph = rewrite(graph, keep)
        self.shapes = shapes
        self.formats = formats or {}
        self.overlay = overlay
        self.schedule = Schedule()
        self.programs: dict[int, Program] = {}
        refused: dict[str, str] = {}
        self.partition: Partition = partition(self.graph, shapes, overlay, chosen, refused)
        if formats is None:
            return
        target = Target(overlay, formats, shapes)
        tasks = lower(self.partition, target)
        while isinstance(tasks, tuple):  # a layer whose numbers do not fit goes to the host; one less each time
            name, reason = tasks
            log.info("layer %r runs on the host: %s", name, reason)
            refused[name] = reason
            self.partition = partition(self.graph, shapes, overlay, chosen, refused)
            tasks = lower(self.partition, target)
        self.schedule = schedule(self.graph, self.partition, target, tasks)
        for i, step in enumerate(self.schedule.steps):
            if isinstance(step, DeviceStep):
                self.programs[i] = device.compile(overlay, step.tasks, shapes, self.schedule.places)

    def run(self, feeds: Mapping[str, Array], keep: Collection[str]) -> tuple[dict[str, Array], PerfInfo]:
        """The blobs of ``keep`` (ids) in float32, and what the pass took."""
        host: dict[str, Array] = dict(feeds)
        codes: dict[str, Array] = {}
        steps: list[StepTime] = []
        started = perf_counter()
        with np.errstate(all="ignore"):
            for i, step in enumerate(self.schedule.steps):
                if isinstance(step, Convert):
                    steps.append(self._convert(step, host, codes))
                elif isinstance(step, HostStep):
                    steps.append(self._host(step, host))
                else:
                    steps += self._device(step, self.programs[i], codes)
        wall = (perf_counter() - started) * 1000
        batch = next((f.shape[0] for f in feeds.values() if f.ndim), 1)
        for blob in keep:
            if blob not in host and blob in codes:
                host[blob] = self.formats[blob].dequantize(codes[blob])
        return {b: host[b] for b in keep if b in host}, PerfInfo(tuple(steps), wall, batch)

    def _convert(self, step: Convert, host: dict[str, Array], codes: dict[str, Array]) -> StepTime:
        begin = perf_counter()
        if step.kind == "Pack":
            made = codes[step.blob] = step.format.quantize(host[step.blob])
        else:
            made = host[step.blob] = step.format.dequantize(codes[step.blob])
        ms = (perf_counter() - begin) * 1000
        name = f"{step.kind} {self.graph.caffe_name(step.blob)}"
        return StepTime(name, step.kind, "host", ms, 0, made.nbytes, (step.blob,), (step.blob,))

    def _host(self, step: HostStep, host: dict[str, Array]) -> StepTime:
        layer = step.layer
        bottoms = [host[b] for b in layer.bottoms]
        begin = perf_counter()
        tops = layer.forward(*bottoms)
        if layer.slope is not None:  # a ReLU that a pass took in
            tops = tuple(np.where(t < 0, np.float32(layer.slope) * t, t) for t in tops)
        ms = (perf_counter() - begin) * 1000
        for blob, top in zip(layer.tops, tops):
            if top.shape != self.shapes[blob] and not layer.dynamic:
                raise layer.wrong(f"wrote {show(top.shape)}, its shape rule says {show(self.shapes[blob])}")
            host[blob] = top
        macs = layer.macs(tuple(b.shape for b in bottoms), tuple(t.shape for t in tops))
        written = sum(t.nbytes for t in tops)
        return StepTime(layer.name, layer.type, layer.engine, ms, macs, written, layer.bottoms, layer.tops)

    def _device(self, step: DeviceStep, program: Program, codes: dict[str, Array]) -> list[StepTime]:
        begin = perf_counter()
        times = program.run(codes)
        whole = (perf_counter() - begin) * 1000
        if times is None:
            names = " .. ".join(dict.fromkeys((step.layers[0].name, step.layers[-1].name)))
            macs = sum(t.macs(*(self.shapes[b] for b in t.inputs)) for t in step.tasks)
            return [StepTime(names, "segment", "fpga", whole, macs, 0, step.reads, step.writes)]
        return [
            StepTime(
                "+".join(task.origin[:1]),
                task.kind,
                "fpga",
                ms,
                task.macs(*(self.shapes[b] for b in task.inputs)),
                int(np.prod(self.shapes[task.output])),
                task.inputs,
                (task.output,),
            )
            for task, ms in zip(step.tasks, times)
        ]
