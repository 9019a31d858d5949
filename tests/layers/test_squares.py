"""Layers whose maps an overlay interleaves: the codes that it has without the unit, or with other Tasks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import chai
from chai import overlay as overlays
from tests.passes.common import network

from .common import GEOMETRY, Pair

SLOPES = {"": "", "leaky": "\nr ReLU y -> y : relu_param { negative_slope: 0.3 }", "PReLU": "\nr PReLU y -> y"}


def kinds(net: chai.Net) -> list[str]:
    return [task.kind for step in net.schedule.segments for task in step.tasks]


def without_interleave(folder: Path) -> Path:
    """The default overlay's manifest without the unit, in a folder."""
    manifest = json.loads(overlays.load().path.read_text())
    del manifest["tasks"]["interleave"]
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("after", SLOPES)
@GEOMETRY
@given(
    size=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    stride=st.tuples(st.integers(1, 4), st.sampled_from([2, 2, 4])),
    more=st.tuples(st.integers(-1, 2), st.integers(-1, 2)),
    pad=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    outputs=st.integers(1, 9),
    group=st.sampled_from([1, 1, 2, 8]),
    unsigned=st.booleans(),
    seed=st.integers(0, 99),
)
def test_phases_have_the_codes_of_a_map_with_zeros(
    tmp_path_factory: pytest.TempPathFactory,
    after: str,
    size: Pair,
    stride: Pair,
    more: Pair,
    pad: Pair,
    outputs: int,
    group: int,
    unsigned: bool,
    seed: int,
) -> None:
    """The same bits, of a top whose size is a multiple of the stride."""
    kernel = [s + s * m + 2 * p for s, m, p in zip(stride, more, pad)]
    assume(all(s * (n - 1) + k - 2 * p >= s and k > p for s, n, k, p in zip(stride, size, kernel, pad)))
    assume(all(k + s - 1 <= 11 for k, s in zip(kernel, stride)))  # with zeros it has so many taps
    m = outputs if group == 1 else group * (1 + outputs % 2)
    fields = {"num_output": m, "group": group}
    for name, pair in (("kernel", kernel), ("stride", stride), ("pad", pad)):
        fields |= {f"{name}_h": pair[0], f"{name}_w": pair[1]}
    text = " ".join(f"{name}: {value}" for name, value in fields.items())
    lines = "c Convolution data -> c : convolution_param { num_output: 8 kernel_size: 1 }\n"
    lines += "p ReLU c -> c\n" if unsigned else ""
    lines += f"y Deconvolution c -> y : convolution_param {{ {text} }}{SLOPES[after]}"
    folder = tmp_path_factory.mktemp("phases")
    x = np.random.default_rng(seed).standard_normal((2, 3, *size)).astype(np.float32)
    plain = network(folder, lines, x.shape, device="emulator", overlay=without_interleave(folder))
    net = network(folder, lines, x.shape, device="emulator")
    (top,), (wanted,) = (each.forward(x).values() for each in (net, plain))
    assert top.tobytes() == wanted.tobytes()
    assert kinds(net)[-1] == "interleave" and "upsample" not in kinds(net)
    assert kinds(plain)[1:] == ["upsample", "conv"]
