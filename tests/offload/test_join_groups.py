"""Groups of channels that are no whole words: joined, with zeros for the others' inputs, they give the same codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import chai
from chai import overlay
from chai.artifact.save import save
from chai.fixed import Requantization
from chai.layers._window import JOINED
from chai.layers.convolution import Convolution
from chai.offload.schedule import DeviceStep
from chai.overlay.weights import groups_to_join
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands
from chai.tasks.window import Window
from tests.codegen.cases import decoded, encoded
from tests.codegen.equality import equal
from tests.codegen.test_memory_map import Segment
from tests.passes.common import network
from tests.tasks.common import EXAMPLES, codes, emulated, factors, seeds

Z2 = overlay.load("pynq-z2")
WORD = Z2.layout.channels_per_word


def conv(rng: np.random.Generator, group: int, inputs: int, outputs: int, window: Window) -> Conv:
    """A convolution of ``x`` with this many inputs and outputs per group."""
    m = group * outputs
    r = Requantization(factors(rng, (m, 1, 1), 20), 20, -128, 127)
    weights = codes(rng, m, inputs, *window.kernel, low=-127)
    return Conv(("x",), "y", ("y",), weights, rng.integers(-(1 << 16), 1 << 16, m), window, group, r)


def passes(group: int, inputs: int, outputs: int) -> int:
    """Blocks of inputs times blocks of outputs, as the array takes them."""
    return group * -(-inputs // Z2.array.inputs) * -(-outputs // Z2.array.outputs)


@EXAMPLES
@given(
    group=st.integers(2, 12),
    inputs=st.integers(1, 18),
    outputs=st.integers(1, 26),
    window=st.sampled_from([Window((1, 1), (1, 1), (0, 0)), Window((3, 2), (2, 1), (1, 1), (1, 2))]),
    seed=seeds,
)
def test_joined_groups_are_whole_words_and_give_the_same_codes(
    group: int, inputs: int, outputs: int, window: Window, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    task = conv(rng, group, inputs, outputs, window)
    joint_task = task.joined(Z2)
    x = codes(rng, 2, group * inputs, 5, 7)
    wanted = task.define(x)
    assert np.array_equal(joint_task.define(x), wanted)
    assert np.array_equal(emulated([joint_task], {"x": x}, {"y": wanted.shape})["y"], wanted)
    assert joint_task.macs(x.shape) == task.macs(x.shape)
    if inputs == outputs == 1:
        assert joint_task is task
        return
    m, c = joint_task.weights.shape[:2]
    assert joint_task.group == 1 or c % WORD == m // joint_task.group % WORD == 0
    # no other choice takes fewer passes
    others = [n for n in range(1, group + 1) if group % n == 0]
    others = [n for n in others if n == group or n * inputs % WORD == n * outputs % WORD == 0]
    assert passes(joint_task.group, c, m // joint_task.group) == min(
        passes(group // n, n * inputs, n * outputs) for n in others
    )
    shapes = {"x": x.shape, "y": wanted.shape}
    address = Segment(shapes, {}, [(("x",), "y")], ["x"], ["y"]).lay().blobs
    descriptor, constants = encoded(joint_task, Operands(Z2, address, shapes), 64)
    assert equal(decoded(descriptor, constants, Z2, address, shapes, 64, joint_task), joint_task)


CHOICES = {
    "AlexNet's conv2": ((256, 48, 5, 5), 2, 1),
    "ResNeXt 32x4d": ((128, 4, 3, 3), 32, 4),
    "no whole words": ((20, 6, 3, 3), 2, 2),
    "three of four": ((12, 4, 3, 3), 3, 3),
    "depthwise": ((96, 1, 3, 3), 96, 1),
    "two outputs per input": ((64, 1, 3, 3), 32, 8),
    "one group": ((5, 3, 3, 3), 1, 1),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_joined(name: str) -> None:
    shape, group, wanted = CHOICES[name]
    assert groups_to_join(shape, group, Z2) == wanted


def test_in_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the overlay and in its file; its products are the layer's own."""
    monkeypatch.setenv("CHAI_CHECK", "1")
    lines = """
        a Convolution data -> a : convolution_param { num_output: 12 kernel_size: 1 }
        b Convolution a -> b : convolution_param { num_output: 20 kernel_size: 3 pad: 1 group: 2 }
        """
    net = network(tmp_path, lines, device="emulator")
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5, 7)).astype(np.float32)
    net.calibrate(x)
    wanted = net.forward(x)["b"]
    (segment,) = (step for step in net.schedule.steps if isinstance(step, DeviceStep))
    assert [(t.origin, t.group) for t in segment.tasks if isinstance(t, Conv)] == [(("a",), 1), (("b",), 1)]
    macs = {s.name: s.macs for s in net.perf.steps if s.engine == "fpga"}
    assert macs == {"a": 2 * 35 * 12 * 3, "b": 2 * 35 * 20 * 6 * 9}
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator")
    assert np.array_equal(again.forward(x)["b"], wanted)
    assert {s.name: s.macs for s in again.perf.steps if s.engine == "fpga"} == macs
    monkeypatch.setattr(Conv, "joined", lambda task, _: task)
    apart = network(tmp_path, lines, device="emulator")
    apart.calibrate(x)
    assert np.array_equal(apart.forward(x)["b"], wanted)


def test_too_many_groups_to_join_run_on_the_host() -> None:
    """A prime number of groups has no other divisor than itself."""
    layer = Convolution("c", ("x",), ("y",), Convolution.Params(4078, kernel_size=(3,), group=2039))
    assert layer.unsupported(Z2, (1, 4078, 9, 9)) == (
        f"2039 groups share words of channels; joined, their weights take more than {JOINED:,} bytes"
    )
    assert (
        Convolution("c", ("x",), ("y",), Convolution.Params(4078, kernel_size=(1,), group=2)).unsupported(
            Z2, (1, 4078, 9, 9)
        )
        is None
    )
