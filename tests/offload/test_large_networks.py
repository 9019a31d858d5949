"""Large networks with Gaussian weights: no layer is on the host for its accumulator, and FC layers are int8."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import chai
from chai.blob import on_device
from chai.codegen.chain import chain, footprint
from chai.fixed import Format
from chai.graph import Graph
from chai.layers.batch_norm import BatchNorm
from chai.offload.plan import Plan
from chai.offload.planning import plan
from chai.offload.schedule import DeviceStep
from chai.tasks.target import Target

Array = np.ndarray


def gaussian(graph: Graph) -> None:
    """Seeded weights, statistics that change nothing."""
    rng = np.random.default_rng(0)
    for layer in graph.layers:
        for i, blob in enumerate(layer.blobs):
            if blob.ndim > 1:
                blob[...] = rng.standard_normal(blob.shape, np.float32) * np.float32((2 / blob[0].size) ** 0.5)
            else:
                blob[...] = float(i > 0 if isinstance(layer, BatchNorm) else i == 0 and layer.per_channel)


def planned(name: str, scheme: str) -> Plan:
    """Its plan, with every blob in a format for values up to 4: signed, as inputs are, or not, as after a ReLU."""
    with chai.Net(name, device="null") as net:
        gaussian(net.graph)
        blobs = {blob for layer in net.graph.layers for blob in (*layer.bottoms, *layer.tops)}
        shapes = {blob: net.shapes_of(blob) for blob in blobs}
        signed = Format(scheme, 8, 4.0 if scheme == "Xilinx" else 5)
        unsigned = Format(scheme, 8, 4.0 if scheme == "Xilinx" else 6, True)
        formats = {blob: signed if blob in net.inputs else unsigned for blob in blobs}
        assert net.overlay is not None
        return plan(net.graph, shapes, net.overlay, {}, formats)


def decibels(planned: Plan) -> Mapping[str, float]:
    """SQNR of the weights of each convolution and FC layer on the overlay."""
    target = Target(planned.overlay, planned.formats, {b: on_device(s) for b, s in planned.shapes.items()})
    found = {}
    for segment in planned.partition.segments:
        for layer in segment.layers if segment.engine == "fpga" else ():
            if layer.blobs and not layer.per_channel:
                (bottom,), (top,) = layer.bottoms, layer.tops
                weights = layer.weight_rows
                codes, _, steps = target.weights(weights, None, layer.precision, bottom, top)
                each = (steps / planned.formats[bottom].step).reshape(-1, *(1,) * (weights.ndim - 1))
                noise = sum(float(((w - c * s) ** 2).sum()) for w, c, s in zip(weights, codes, each))
                found[layer.name] = 10 * np.log10(float((weights.astype(np.float64) ** 2).sum()) / noise)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50", "yolov2_tiny"])
def test_no_layer_is_lost_to_the_accumulator(name: str, scheme: str) -> None:
    made = planned(name, scheme)
    assert not any("a sum could reach" in reason for reason in made.partition.reasons.values())
    assert made.coarser or scheme == "DynamicFixed"
    found = decibels(made)
    assert made.coarser.keys() <= found.keys()
    assert min([found[layer] for layer in made.coarser], default=99) > (25 if scheme == "Xilinx" else 20)
    if name == "vgg16":
        steps = [s for s in made.schedule.steps if isinstance(s, DeviceStep)]
        views = made.schedule.views
        constants = footprint(
            [chain(made.overlay, s.tasks, made.device_shapes, views, s.inputs, s.outputs) for s in steps]
        ).constants
        (scores,) = (x for x in made.graph.layers if x.name == "fc8")
        assert {"fc6", "fc7"} <= found.keys() and made.partition.engine("fc8") == "host"
        assert constants + sum(blob.nbytes for blob in scores.blobs) < 153e6
