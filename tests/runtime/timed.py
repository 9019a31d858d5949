"""Networks with custom layers, their times summed by hand, and a clock that tests set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import net as net_module
from chai.runtime import execution, slot
from chai.runtime.perf import PerfInfo
from chai.runtime.steps import conversions, forward, in_c, layers, segments
from tests.passes.common import CONV, network

X = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5, 7)).astype(np.float32)
CLOCKS = (  # modules that read the clock
    *(forward, layers, execution, slot, conversions, in_c, segments, net_module),
)
NUMBER = re.compile(r"\d+\.\d+")


def twice(x: chai.xChangeLayer) -> None:
    x.top[0][...] = x.bottom[0] * 2


def mixed(x: chai.xChangeLayer) -> None:
    x.top[0][...] = x.bottom[0] - x.bottom[1] * x.bottom[2]


CUSTOM = {"twice": twice, "mixed": mixed}


def flagged(*shape: int) -> str:
    sizes = " ".join(f"top_dim: {d}" for d in (1, *shape))
    return f"user_defined_layer: true xcustom_param {{ {sizes} }}"


FOUR = flagged(4, 5, 7)  # a top of the convolutions' size
NETS = {  # what each custom layer has to have unpacked and packed
    "three bottoms from the device, a top with three readers": (
        f"a Convolution data -> a : {CONV}\nb Convolution data -> b : {CONV}\nc Convolution data -> c : {CONV}\n"
        f"mix mixed a b c -> m : {FOUR}\n"
        f"d Convolution m -> d : {CONV}\ne Convolution m -> e : {CONV}\nabs AbsVal m -> f",
        {"mix": (["a", "b", "c"], ["m"])},
    ),
    "two in a row": (
        f"a Convolution data -> a : {CONV}\none twice a -> p : {FOUR}\ntwo twice p -> q : {FOUR}\n"
        f"d Convolution q -> d : {CONV}",
        {"one": (["a"], []), "two": ([], ["q"])},
    ),
    "one Unpack for three readers": (
        f"a Convolution data -> a : {CONV}\none twice a -> p : {FOUR}\nmix mixed a p a -> m : {FOUR}\nabs MVN a -> b",
        {"one": (["a"], []), "mix": (["a"], [])},
    ),
    "neither neighbour": (f"one twice data -> p : {flagged(3, 5, 7)}", {"one": ([], [])}),
    "between host layers": (
        f"abs AbsVal data -> b\none twice b -> p : {flagged(3, 5, 7)}\nabs2 AbsVal p -> c",
        {"one": ([], [])},
    ),
    "packed for, not unpacked": (
        f"one twice data -> p : {flagged(3, 5, 7)}\na Convolution p -> a : {CONV}",
        {"one": ([], ["p"])},
    ),
    "none": (f"a Convolution data -> a : {CONV}\nabs AbsVal a -> b", {}),
}
Needs = Mapping[str, tuple[Sequence[str], Sequence[str]]]


def by_hand(perf: PerfInfo, needs: Needs) -> str:
    """CHaiDNN's text, from the steps by their names."""
    ms = {s.name: s.ms for s in perf.steps}
    assert len(ms) == len(perf.steps)
    text = f"[INFOx] Total Number of Custom layers : {len(needs)}\n\n"
    for i, (layer, (unpacked, packed)) in enumerate(needs.items()):
        text += f"[INFOx] Custom Layer - {i + 1} : {layer}\n"
        text += "[PERFM] Unpack layer Latency : %f ms\n" % sum(ms[f"Unpack {blob}"] for blob in unpacked)  # noqa: UP031
        text += "[PERFM] Custom layer Latency : %f ms\n" % ms[layer]  # noqa: UP031
        text += "[PERFM] Pack   layer Latency : %f ms\n\n" % sum(ms[f"Pack {blob}"] for blob in packed)  # noqa: UP031
    return text


def ran(folder: Path, name: str, **options: Any) -> chai.Net:
    net = network(folder, NETS[name][0], device="emulator", custom=CUSTOM, **options)
    net.forward(X)
    return net


class Clock:
    """Time that passes only where a test lets it pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        for module in CLOCKS:
            monkeypatch.setattr(module, "perf_counter", lambda: self.seconds)
