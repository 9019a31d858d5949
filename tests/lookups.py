"""The default overlay with tables of codes, functions of one number in float64, and Tasks whose codes go through tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

from chai import overlay as overlays
from chai.fixed import Requantization
from chai.overlay import Overlay
from chai.tasks import Task
from chai.tasks.affine import Affine
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy
from chai.tasks.eltwise import Eltwise
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from chai.util.rounding import ceil_div

Array = np.ndarray


def with_lookups(folder: Path, *kinds: str) -> Overlay:
    """The overlay of a manifest that is written to a folder, in which these kinds have tables, by default all."""
    manifest = json.loads(overlays.load().path.read_text())
    for kind, limits in manifest["tasks"].items():
        if kind != "lrn":  # whose table is another one
            limits["lookup"] = not kinds or kind in kinds
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return overlays.load(path)


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def _positive(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


# type of the layer, its fields, and Caffe's formula
FUNCTIONS: dict[str, tuple[str, str, Callable[[float], float]]] = {
    "Sigmoid": ("Sigmoid", "", lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0),
    "TanH": ("TanH", "", math.tanh),
    "ELU": ("ELU", "elu_param { alpha: 0.7 }", lambda x: x if x > 0 else 0.7 * math.expm1(x)),
    "Swish": ("Swish", "", lambda x: x / (1 + math.exp(-x)) if x > -700 else 0.0),
    "HardSwish": ("HardSwish", "", lambda x: x * min(max(x + 3, 0), 6) / 6),
    "BNLL": ("BNLL", "", _positive),
    "Exp": ("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.25 }", lambda x: 2 ** min(0.5 * x + 0.25, 900.0)),
    "Log": ("Log", "log_param { base: 3 scale: 1 shift: 40 }", lambda x: math.log(x + 40, 3)),
    "Power": ("Power", "power_param { power: 2 scale: 0.5 shift: -1 }", lambda x: (0.5 * x - 1) ** 2),
    "AbsVal": ("AbsVal", "", abs),
    "Clip": ("Clip", "clip_param { min: -0.4 max: 1.3 }", lambda x: min(max(x, -0.4), 1.3)),
    "Threshold": ("Threshold", "threshold_param { threshold: 0.31 }", lambda x: float(x > 0.31)),
    "ReLU": ("ReLU", "", lambda x: max(x, 0.0)),
    "leaky ReLU": ("ReLU", "relu_param { negative_slope: 0.1 }", lambda x: x if x > 0 else 0.1 * x),
    "steep ReLU": ("ReLU", "relu_param { negative_slope: -1.5 }", lambda x: x if x > 0 else -1.5 * x),
    "ReLU6": ("ReLU", "relu_param { relu6: true }", lambda x: min(max(x, 0.0), 6.0)),
    "Erf": ("Erf", "", math.erf),
}


def layer_text(name: str, fields: str, type: str, bottom: str = "data") -> str:
    """A layer of a prototxt."""
    if type == "Input":
        return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ {fields} }} }}\n'
    return f'layer {{ name: "{name}" type: "{type}" bottom: "{bottom}" top: "{name}" {fields} }}\n'


# -- Tasks whose codes go through a table

KINDS = "conv", "depthwise", "affine", "max", "average", "eltwise", "leaky eltwise", "copy", "rescaled copy"


def random_task(kind: str, seed: int) -> tuple[Task, dict[str, tuple[int, ...]], dict[str, Array]]:
    """A Task of any numbers, the shapes of its blobs, and codes of its inputs."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n, c, h, w = (int(rng.integers(*ends)) for ends in ((1, 3), (1, 20), (4, 9), (4, 9)))
    zero, zero_out = (int(rng.choice([0, -128])) for _ in range(2))
    shift = int(rng.integers(*((17, 22) if kind in ("conv", "depthwise", "affine") else (9, 14))))
    own = shift, -128, 127
    shapes: dict[str, tuple[int, ...]] = {"x": (n, c, h, w), "y": (n, c, h, w)}
    task: Task
    if kind in ("conv", "depthwise", "affine"):
        m, group = (int(rng.integers(1, 30)), 1) if kind == "conv" else (c, c)
        side = 1 if kind == "affine" else 3
        window = Window((side, side), (1, 1), (side // 2, side // 2))
        weights = rng.integers(-127, 128, (m, c // group, side, side)).astype(np.int8)
        bias = rng.integers(-5000, 5000, m) - zero * weights.reshape(m, -1).sum(1, dtype=np.int64)
        spread = 70 * 70 * (weights[0].size ** 0.5)
        above = (rng.uniform(0.3, 1, (m, 1, 1)) * 2**shift * 90 / spread).astype(np.int64)
        r = Requantization(above, *own, above // 4 if rng.random() < 0.3 else None, zero_out)
        task = (Affine if kind == "affine" else Conv)(("x",), "y", (kind,), weights, bias, window, group, r, zero)
        shapes["y"] = (n, m, h, w)
    elif kind in ("max", "average"):
        out = ceil_div(h - 3, 2) + 1, ceil_div(w - 3, 2) + 1
        r = (
            Requantization(rng.integers(1, 1 + (1 << shift) // 9, out), *own, zero=zero_out)
            if kind == "average"
            else None
        )
        task = Pool(("x",), "y", (kind,), Window((3, 3), (2, 2), (0, 0)), out, r, zero if r else 0)
        shapes["y"] = (n, c, *out)
    elif "eltwise" in kind:
        factors, negative = (tuple(map(int, rng.integers(-(1 << shift), 1 << shift, 2))) for _ in range(2))
        one = Requantization(np.array(1), *own, zero=zero_out)
        leaky = negative if "leaky" in kind else None
        task = Eltwise(("x", "z"), "y", (kind,), (factors[0], factors[1]), leaky, one, (zero, zero_out))
        shapes["z"] = shapes["x"]
    else:
        r = (
            Requantization(np.array(int(rng.integers(1, 1 << shift))), *own, zero=zero_out)
            if "rescaled" in kind
            else None
        )
        task = Copy(("x",), "y", (kind,), 0, r, zero if r else 0)
    codes = {blob: rng.integers(-128, 128, shapes[blob]).astype(np.int8) for blob in task.inputs}
    return task, shapes, codes


def looked_up(task: Task, seed: int) -> tuple[Task, tuple[Task, Copy]]:
    """The Task with a table of any codes, and the same as two Tasks."""
    table = np.random.default_rng(seed).integers(-128, 128, 256).astype(np.int8)
    after = Copy(("between",), task.output, task.origin, 0, None, lookup=table)
    return replace(task, lookup=table), (replace(task, output="between"), after)


# -- networks


def random_lines(seed: int) -> str:
    """The lines of ``tests.passes.common.network``: what an overlay runs, with functions of one number after most of it."""
    random = Random(seed)
    blobs, lines = ["data"], []
    last = "data"
    for i in range(random.randint(3, 8)):
        choice = random.random()
        kind, bottoms, fields = "Convolution", last, ""
        if choice < 0.4 or len(blobs) < 3:
            depth = random.choice([8, 16, 24])
            kernel = random.choice([1, 3])
            fields = f"num_output: {depth} kernel_size: {kernel} pad: {kernel // 2} weight_filler {{ type: 'xavier' }}"
            fields = f"convolution_param {{ {fields} }}"
        elif choice < 0.55:
            method = random.choice(["MAX", "AVE"])
            kind, fields = "Pooling", f"pooling_param {{ pool: {method} kernel_size: 3 stride: 1 pad: 1 }}"
        elif choice < 0.7:
            kind, fields = "Scale", "scale_param { bias_term: true }"
        elif choice < 0.85:
            kind, bottoms = "Eltwise", f"{last} {last}"
        else:
            kind, bottoms = "Concat", f"{last} {random.choice(blobs[1:])}"
        blob = f"b{i}"
        lines.append(f"{blob} {kind} {bottoms} -> {blob}" + (f" : {fields}" if fields else ""))
        blobs.append(blob)
        for j in range(random.choice([0, 1, 1, 2])):
            type, fields, _ = FUNCTIONS[random.choice(SAFE)]
            in_place = blob if random.random() < 0.5 else f"{blob}f{j}"
            lines.append(f"f{i}{j} {type} {blob} -> {in_place}" + (f" : {fields}" if fields else ""))
            blob = blobs[-1] = in_place
        last = blob
    lines.append(f"end Convolution {last} -> end : convolution_param {{ num_output: 8 kernel_size: 1 }}")
    return "\n".join(lines)


SAFE = [name for name in FUNCTIONS if name not in ("Log", "Exp", "Threshold")]  # of any numbers, not too large
