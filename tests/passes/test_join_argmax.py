"""join_argmax: a Deconvolution whose scores an ArgMax reads, as one layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.passes.join_argmax import join_argmax

from .common import facts, make, origins, same, types

SCORES = "d Deconvolution data -> d : convolution_param { num_output: 6 group: 3 kernel_size: 5 stride: 3 pad: 1 }"
BEST = "argmax_param { axis: 1 }"
CROP = "crop_param { axis: 2 offset: 1 offset: 4 }"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"{SCORES}\nm ArgMax d -> m : {BEST}", [("d", "m")]),
        (f"{SCORES}\nm ArgMax d -> m : argmax_param {{ top_k: 3 }}", [("d", "m")]),
        (f"{SCORES}\nk Crop d data -> k : {CROP}\nm ArgMax k -> m : {BEST}", [("d", "k", "m")]),
        (f"{SCORES}\nm ArgMax d -> m : {BEST}\nk Crop m data -> k : {CROP}", [("d", "m"), ("k",)]),
        (f"{SCORES}\nm ArgMax d -> m : {BEST}\np TanH d -> p", [("d",), ("m",), ("p",)]),
        (f"{SCORES}\nr ReLU d -> r\nm ArgMax r -> m : {BEST}", [("d",), ("r",), ("m",)]),
        (
            f"{SCORES}\nk Crop d d -> k : crop_param {{ axis: 1 }}\nm ArgMax k -> m : {BEST}",
            [("d",), ("k",), ("m",)],
        ),
    ],
    ids=["pair", "any ArgMax", "crop", "crop after", "other reader", "rectified", "crop of classes"],
)
def test_what_is_joined(tmp_path: Path, lines: str, expected: list[tuple[str, ...]]) -> None:
    graph = make(tmp_path, lines)
    known = facts(graph)
    after = join_argmax(graph)
    assert facts(graph) == known
    assert origins(after) == expected
    same(graph, after)


def test_the_joined_layer_is_the_deconvolution_with_an_index_for_each_pixel(tmp_path: Path) -> None:
    (layer,) = (x for x in join_argmax(make(tmp_path, f"{SCORES}\nm ArgMax d -> m : {BEST}")).layers if not x.source)
    assert (layer.name, layer.type, layer.indices, layer.decision) == ("d", "Deconvolution", True, "argmax")
    assert layer.shapes((2, 3, 5, 7)) == ((2, 1, 15, 21),)
    assert layer.macs(((2, 3, 5, 7),), ((2, 1, 15, 21),)) == np.prod((2, 3, 5, 7)) * 2 * 25
    assert types(join_argmax(make(tmp_path, SCORES))) == ["Deconvolution"]
