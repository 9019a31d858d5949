"""Whole trained networks: every Task the emulator runs gives the codes of its definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import pytest

import chai
from chai.devices.base import Program, Ran
from chai.devices.emulator import Emulator
from chai.images.files import read
from chai.offload.schedule import DeviceStep
from chai.tasks import Task
from chai.tasks.copy import Copy
from chai.tasks.work import Work
from chai.util.paths import resource
from chai.zoo.card_file import read_card
from tests.conftest import need_models, report

from .common import Array

# how many Tasks of each kind, so that nothing leaves the overlay unseen
NETWORKS: dict[str, dict[str, int]] = {
    "digits": {"conv": 13, "pool": 4},
    "squeezenet_v1.1": {"conv": 26, "pool": 4},
    "cifar_resnet20": {"conv": 21, "eltwise": 9, "pool": 1},
    "rfb320_face": {"conv": 34, "depthwise": 18, "eltwise": 1},
    "googlenet": {"conv": 57, "pool": 14, "lrn": 2},
}
FORMATS = [("Xilinx", 8), ("DynamicFixed", 6)]


class Checked(Program):
    """A Program whose every Task is compared with its definition, on the codes the Program itself had."""

    def __init__(self, program: Program, tasks: Sequence[Task], seen: Counter[str]) -> None:
        self.program, self.tasks, self.seen = program, tasks, seen

    def run(self, blobs: dict[str, Array]) -> Ran:
        times = self.program.run(blobs)
        for task in self.tasks:
            output = blobs[task.output]
            if isinstance(task, Copy):
                output = output[:, task.first : task.first + blobs[task.inputs[0]].shape[1]]
            assert output.dtype == np.int8
            assert output.size < 100 or len(np.unique(output)) > 2, f"{task.origin} has next to nothing to compare"
            assert np.array_equal(output, task.define(*(blobs[b] for b in task.inputs))), task.origin
            self.seen[task.kind] += 1
        return times


def opened(name: str, scheme: str, bits: int) -> tuple[chai.Net, Array]:
    """A network and an image for it."""
    if name == "digits":
        path = resource("prototxt", "digits.prototxt")
        image = read(sorted(path.with_name("digits_images").glob("*.png"))[0])
        x = np.stack([read_card(path).preprocess(image, (1, 1, 8, 8))])
        return chai.Net(name, device="emulator", batch=1, scheme=scheme, bits=bits), x
    folder = need_models() / name
    case = sorted((folder / "cases").iterdir())[0]
    net = chai.Net(
        folder / "deploy.prototxt", folder / "weights.caffemodel", device="emulator", batch=1, scheme=scheme, bits=bits
    )
    return net, np.load(case / "input.npy")[:1]


@pytest.mark.parametrize(("scheme", "bits"), FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_task_gives_the_codes_of_its_definition(
    name: str, scheme: str, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = perf_counter()
    seen: Counter[str] = Counter()
    compile_ = Emulator.compile

    def checked(self: Emulator, work: Work) -> Program:
        every = work._replace(reads=(), writes=())  # asked for by nobody in particular: no blob is dropped
        return Checked(compile_(self, every), work.tasks, seen)

    monkeypatch.setattr(Emulator, "compile", checked)
    net, x = opened(name, scheme, bits)
    net.forward(x)
    scheduled = Counter(t.kind for s in net.schedule.steps if isinstance(s, DeviceStep) for t in s.tasks)
    report(f"{name}, {scheme} {bits}: {seen.total()} Tasks equal their definitions, {perf_counter() - begin:.1f} s")
    assert seen == scheduled
    merged = Counter(whole for whole, _ in net.schedule.views.values() if whole in net.schedule.shapes)
    seen["conv"] += sum(count - 1 for count in merged.values())
    assert seen == NETWORKS[name]
