"""What the layers' tests share: a net around one layer, seeded numbers, and when two arrays are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings

import chai
from tests.conftest import examples

Array = np.ndarray
Shape = tuple[int, ...]
Pair = tuple[int, int]
Run = Callable[..., tuple[Array, ...]]

# the same examples on every run; nothing is stored between runs
GEOMETRY = settings(max_examples=examples(80))


def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Float32 numbers, the same for the same seed and shape."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


def close(values: Array, reference: Array, tolerance: float = 1e-5) -> None:
    """Equal shapes, NaN in the same places, and no difference above ``tolerance`` times the largest reference."""
    assert values.shape == reference.shape
    numberless = np.isnan(reference)
    assert np.array_equal(np.isnan(values), numberless)
    values, reference = np.where(numberless, 0, values), np.where(numberless, 0, reference)
    limit = tolerance * float(np.abs(reference).max(initial=0)) + 1e-30
    worst = float(np.abs(values.astype(np.float64) - reference).max(initial=0))
    assert worst <= limit, f"differs by {worst:g}, allowed {limit:g}"


def blob_shape(shape: Shape) -> str:
    return "shape { " + " ".join(f"dim: {d}" for d in shape) + " }"


def prototxt(type: str, body: str, shapes: Sequence[Shape], tops: int = 1) -> str:
    """A net: one Input per shape, and a layer ``probe`` that reads x0, x1, ... and writes y0, y1, ..."""
    text = "".join(
        f'layer {{ name: "in{i}" type: "Input" top: "x{i}" input_param {{ {blob_shape(shape)} }} }}\n'
        for i, shape in enumerate(shapes)
    )
    wires = [f'bottom: "x{i}"' for i in range(len(shapes))] + [f'top: "y{i}"' for i in range(tops)]
    text += f'layer {{ name: "probe" type: "{type}" {" ".join(wires)}\n  {body}\n}}\n'
    if not tops:  # a net needs an output
        text += 'layer { name: "output" type: "AbsVal" bottom: "x0" top: "abs" }\n'
    return text


def build(folder: Path, type: str, body: str, shapes: Sequence[Shape], tops: int = 1, **options: Any) -> chai.Net:
    """The net of ``prototxt``, through a file as users write it."""
    path = folder / "net.prototxt"
    path.write_text(prototxt(type, body, shapes, tops))
    return chai.Net(path, device="float", keep="all", **options)


def run_in(folder: Path) -> Run:
    """``run(type, body, *bottoms, weights=(), tops=1)``: what the layer writes, after checking how it behaves."""

    def run(type: str, body: str, *bottoms: Array, weights: Sequence[Array] = (), tops: int = 1) -> tuple[Array, ...]:
        net = build(folder, type, body, [b.shape for b in bottoms], tops)
        layer = net.graph.layer("probe")
        stored = net.params.get("probe", [])
        assert [b.shape for b in stored] == [w.shape for w in weights]
        for blob, values in zip(stored, weights):
            blob[...] = values
        copies = [b.copy() for b in bottoms]
        # nothing of another pass may show up in the next one; rows stay rows, as regions and indices need
        net.forward(*(np.flip(b, 0) if b.shape[:1] > (1,) else np.flip(b) for b in copies))
        net.forward(*copies)
        outputs = net.tops("probe")
        assert len(outputs) == tops
        for array, name in zip(outputs, (f"y{i}" for i in range(tops))):
            assert array.dtype == np.float32
            if not layer.dynamic:
                assert array.shape == net.shapes[name]
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(copies, bottoms)), "a bottom was overwritten"
        assert all(np.array_equal(a, b) for a, b in zip(stored, weights)), "a weight was overwritten"
        return outputs

    return run
