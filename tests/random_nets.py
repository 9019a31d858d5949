"""Random networks by seed, with Caffe's formulas as naive loops, so that three programs can be compared on them.

A network is small (a few thousand numbers) but has what real ones have: several outputs, Split, a Concat of one, an
Eltwise of one blob with itself, chains in place and not in place, grouped, dilated and depthwise convolutions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chai.parser.caffemodel import write_caffemodel
from tests.reference import arrangement, elementwise, normalization, window

Array = np.ndarray
Shape = tuple[int, ...]
Compute = Callable[..., list[Array]]


@dataclass
class Step:
    """One layer: its text, its weights, and its tops from its bottoms by Caffe's formula."""

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    fields: str
    blobs: list[Array]
    compute: Compute

    def __str__(self) -> str:
        wires = [f'bottom: "{b}"' for b in self.bottoms] + [f'top: "{t}"' for t in self.tops]
        return f'layer {{ name: "{self.name}" type: "{self.type}" {" ".join(wires)} {self.fields} }}'


@dataclass
class RandomNet:
    """The network of a seed: ``RandomNet(seed)``.

    ``sizes`` (N, C, H, W) are those of its images, and ``table`` says how often it has layers of each kind.
    """

    seed: int
    sizes: tuple[Sequence[int], ...] = (1, 1, 2, 3), (1, 3, 4, 8, 16), (4, 5, 7, 9, 12), (4, 6, 7, 10, 11)
    table: Mapping[Callable[[RandomNet], Any], int] = field(default_factory=lambda: TABLE)
    steps: list[Step] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng([13, self.seed])
        kinds, weights = list(self.table), np.array(list(self.table.values())) / sum(self.table.values())
        images = self._one(*self.sizes[0])
        for name in ("data", "more")[: self._one(1, 1, 1, 2)]:
            shape = images, *(self._one(*sizes) for sizes in self.sizes[1:])
            self.shapes[name] = shape
            self.inputs[name] = self.draw.standard_normal(shape).astype(np.float32)
            self._add(*FIRST[self._one(*range(len(FIRST)))](self, name))  # each input is read
        for _ in range(self._one(2, 3, 4, 5, 6, 8, 10)):
            kind = kinds[int(self.draw.choice(len(kinds), p=weights))]
            if (parts := kind(self)) is not None:
                self._add(*parts)

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs that no layer reads, in the order in which they were written last."""
        return list(self.unread)

    @property
    def text(self) -> str:
        """The prototxt."""
        return "\n".join([*self._head(), *map(str, self.steps)]) + "\n"

    def _head(self) -> list[str]:
        sizes = {name: " ".join(f"dim: {d}" for d in self.shapes[name]) for name in self.inputs}
        form = 'layer {{ name: "{0}" type: "Input" top: "{0}" input_param {{ shape {{ {1} }} }} }}'
        return [f'name: "random{self.seed}"', *(form.format(*item) for item in sizes.items())]

    def _for_opencv(self) -> list[str]:
        """The same network where OpenCV can give every output: its Split has one top, and a layer gives its first."""
        lines = self._head()
        for step in self.steps:
            if step.type == "Split":
                lines += [_same(f"{step.name}.{top}", step.bottoms[0], top) for top in step.tops]
            else:
                lines.append(str(step))
        return [*lines, *(_same(f"end.{name}", name, f"end.{name}") for name in self.outputs)]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write net.prototxt and net.caffemodel, and what the OpenCV process needs to know."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / "net.prototxt", folder / "net.caffemodel"
        paths[0].write_text(self.text)
        write_caffemodel(paths[1], f"random{self.seed}", [(s.name, s.type, s.blobs) for s in self.steps])
        (folder / "opencv.prototxt").write_text("\n".join(self._for_opencv()))
        (folder / "outputs.json").write_text(json.dumps(self.outputs))
        np.savez(folder / "inputs.npz", **self.inputs)
        return paths

    def by_formula(self) -> dict[str, Array]:
        """The outputs by naive loops in float64; a layer in place overwrites its bottom, as in Caffe."""
        values: dict[str, Array] = dict(self.inputs)
        for step in self.steps:
            tops = step.compute(*(values[b] for b in step.bottoms))
            values.update(zip(step.tops, tops, strict=True))
        return {name: values[name] for name in self.outputs}

    # -- drawing

    def _one(self, *choices: Any) -> Any:
        return choices[int(self.draw.integers(len(choices)))]

    def _normal(self, *shape: int, scale: float = 1.0) -> Array:
        return (scale * self.draw.standard_normal(shape)).astype(np.float32)

    def _blob(self, axes: int = 4) -> str | None:
        """A blob of so many axes (0: any), rather a late one; never an input, which its first layer has."""
        known = [n for n, s in self.shapes.items() if n not in self.inputs and axes in (0, len(s))]
        if not known:
            return None
        late = min(int(self.draw.geometric(0.6)), len(known))
        return known[-late]

    def _add(
        self,
        type: str,
        bottoms: list[str],
        fields: str,
        shapes: list[Shape],
        compute: Compute,
        blobs: tuple[Array, ...] = (),
        in_place: bool = False,
    ) -> None:
        name = f"{type.lower()}{len(self.steps)}"
        tops = [bottoms[0]] if in_place else [f"{name}_{i}" if len(shapes) > 1 else name for i in range(len(shapes))]
        if in_place and self.draw.random() < 0.5:
            tops = [name]
        for bottom in bottoms:
            self.unread.pop(bottom, None)
        self.steps.append(Step(name, type, bottoms, tops, fields, list(blobs), compute))
        for top, shape in zip(tops, shapes, strict=True):
            self.shapes.pop(top, None)  # written last: it goes to the end
            self.shapes[top] = shape
            self.unread[top] = None


def _same(name: str, bottom: str, top: str) -> str:
    return str(Step(name, "Power", [bottom], [top], "", [], list))


Parts = tuple[Any, ...] | None


def convolution(net: RandomNet, bottom: str | None = None) -> Parts:
    """Plain, strided, grouped, dilated, depthwise; kernels that are not square."""
    bottom = bottom or net._blob()
    if bottom is None:
        return None
    n, c, *size = net.shapes[bottom]
    kernel = [net._one(*(k for k in (1, 2, 3, 3, 5) if k <= s)) for s in size]
    dilation = 2 if net.draw.random() < 0.2 and all(2 * (k - 1) < s for k, s in zip(kernel, size)) else 1
    stride = [net._one(1, 1, 1, 2, 3) for _ in size]
    pad = [int(net.draw.integers(k)) for k in kernel]
    group = net._one(1, 1, 1, c, *(g for g in (2, 4) if c % g == 0))
    m = group * net._one(1, 2, 3) if group > 1 else net._one(1, 4, 5, 8, 16, 16, 24)
    out = [(s + 2 * p - (dilation * (k - 1) + 1)) // t + 1 for s, p, k, t in zip(size, pad, kernel, stride)]
    w = net._normal(m, c // group, *kernel, scale=(c // group * kernel[0] * kernel[1]) ** -0.5)
    b = net._normal(m) if net.draw.random() < 0.7 else None
    fields = (
        f"convolution_param {{ num_output: {m} kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride_h: {stride[0]} "
        f"stride_w: {stride[1]} pad_h: {pad[0]} pad_w: {pad[1]} dilation: {dilation} group: {group} "
        f"bias_term: {str(b is not None).lower()} }}"
    )
    geometry = tuple(stride), tuple(pad), (dilation, dilation), group
    compute = lambda x: [window.convolution(x, w, b, *geometry)]  # noqa: E731
    return "Convolution", [bottom], fields, [(n, m, *out)], compute, (w,) if b is None else (w, b)


def deconvolution(net: RandomNet) -> Parts:
    """Plain, or in two groups, which OpenCV computes otherwise."""
    bottom = net._blob()
    if bottom is None or max(net.shapes[bottom][2:]) > 8:
        return None
    n, c, *size = net.shapes[bottom]
    kernel, stride = net._one(1, 2, 3, 4), net._one(1, 2)
    group = 2 if c % 2 == 0 and net.draw.random() < 0.15 else 1
    m = group * net._one(2, 3, 16)
    pad = int(net.draw.integers((kernel + 1) // 2))
    out = [stride * (s - 1) + kernel - 2 * pad for s in size]
    if min(out) < 1:
        return None
    w, b = net._normal(c, m // group, kernel, kernel, scale=c**-0.5 / kernel), net._normal(m)
    fields = f"convolution_param {{ num_output: {m} kernel_size: {kernel} stride: {stride} pad: {pad} group: {group} }}"
    compute = lambda x: [window.deconvolution(x, w, b, (stride,) * 2, (pad,) * 2, (1, 1), group)]  # noqa: E731
    return "Deconvolution", [bottom], fields, [(n, m, *out)], compute, (w, b)


def pooling(net: RandomNet, bottom: str | None = None) -> Parts:
    """MAX and AVE, with padding and without, and over all of the image."""
    bottom = bottom or net._blob()
    if bottom is None:
        return None
    n, c, *size = net.shapes[bottom]
    kind = net._one("MAX", "AVE")
    if net.draw.random() < 0.15:
        compute = lambda x: [window.pooling(x, kind, tuple(size), (1, 1), (0, 0))]  # noqa: E731
        return "Pooling", [bottom], f"pooling_param {{ pool: {kind} global_pooling: true }}", [(n, c, 1, 1)], compute
    kernel = net._one(*(k for k in (1, 2, 3, 3, 4) if k <= min(size)))
    stride = net._one(*(s for s in (1, 2, 2, 3) if s <= kernel))  # beyond, the last window may hold no pixel
    pad = int(net.draw.integers((kernel + 1) // 2))
    out = [window.pooled(s, kernel, stride, pad, pad > 0) for s in size]
    fields = f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride} pad: {pad} }}"
    compute = lambda x: [window.pooling(x, kind, (kernel,) * 2, (stride,) * 2, (pad,) * 2)]  # noqa: E731
    return "Pooling", [bottom], fields, [(n, c, *out)], compute


def relu(net: RandomNet) -> Parts:
    bottom, slope = net._blob(0), net._one(0.0, 0.0, 0.0, 0.1, 0.5)
    if bottom is None:
        return None
    fields = f"relu_param {{ negative_slope: {slope} }}" if slope else ""
    return "ReLU", [bottom], fields, [net.shapes[bottom]], lambda x: [elementwise.relu(x, slope)], (), True


def batch_norm(net: RandomNet) -> Parts:
    bottom = net._blob()
    if bottom is None:
        return None
    c = net.shapes[bottom][1]
    mean, variance = net._normal(c), net.draw.uniform(0.5, 2, c).astype(np.float32)
    blobs = 3 * mean, 3 * variance, np.full(1, 3, np.float32)
    compute = lambda x: [normalization.batch_norm(x, *blobs[:2], 3.0, 1e-5)]  # noqa: E731
    return (
        "BatchNorm",
        [bottom],
        "batch_norm_param { use_global_stats: true }",
        [net.shapes[bottom]],
        compute,
        blobs,
        True,
    )


def scale(net: RandomNet) -> Parts:
    bottom = net._blob()
    if bottom is None:
        return None
    c = net.shapes[bottom][1]
    factor, bias = net._normal(c), net._normal(c) if net.draw.random() < 0.7 else None
    fields = f"scale_param {{ bias_term: {str(bias is not None).lower()} }}"
    blobs = (factor,) if bias is None else (factor, bias)
    compute = lambda x: [elementwise.scale(x, factor, 1, bias)]  # noqa: E731
    return "Scale", [bottom], fields, [net.shapes[bottom]], compute, blobs, True


def prelu(net: RandomNet) -> Parts:
    bottom = net._blob()
    if bottom is None:
        return None
    slopes = net._normal(net.shapes[bottom][1], scale=0.3)
    return "PReLU", [bottom], "", [net.shapes[bottom]], lambda x: [elementwise.prelu(x, slopes)], (slopes,), True


def activation(net: RandomNet) -> Parts:
    bottom = net._blob(0)
    functions = {"Sigmoid": elementwise.sigmoid, "TanH": elementwise.tanh, "AbsVal": elementwise.absolute}
    type = net._one(*functions)
    if bottom is None:
        return None
    return type, [bottom], "", [net.shapes[bottom]], lambda x: [functions[type](x)], (), True


def dropout(net: RandomNet) -> Parts:
    bottom = net._blob(0)
    return bottom and ("Dropout", [bottom], "", [net.shapes[bottom]], lambda x: [x], (), True)


def split(net: RandomNet, bottom: str | None = None) -> Parts:
    bottom, count = bottom or net._blob(0), net._one(1, 2, 2, 3)
    return bottom and ("Split", [bottom], "", [net.shapes[bottom]] * count, lambda x: [x] * count)


def eltwise(net: RandomNet) -> Parts:
    """Of two blobs of one shape, of three, or of one with itself."""
    first = net._blob()
    if first is None:
        return None
    same = [n for n, s in net.shapes.items() if s == net.shapes[first] and n not in net.inputs]
    bottoms = [first, *(net._one(*same) for _ in range(net._one(1, 1, 1, 2)))]
    operation = net._one("SUM", "SUM", "SUM", "PROD", "MAX")
    coeff = [net._one(1.0, -1.0, 0.5, 2.0) for _ in bottoms] if operation == "SUM" and net.draw.random() < 0.4 else []
    fields = f"eltwise_param {{ operation: {operation} {' '.join(f'coeff: {c}' for c in coeff)} }}"
    return "Eltwise", bottoms, fields, [net.shapes[first]], lambda *x: [elementwise.eltwise(x, operation, coeff)]


def concat(net: RandomNet) -> Parts:
    """Of one to three blobs along the channels; one of them may come twice."""
    first = net._blob()
    if first is None:
        return None
    n, _, *size = net.shapes[first]
    fit = [b for b, s in net.shapes.items() if len(s) == 4 and (s[0], *s[2:]) == (n, *size) and b not in net.inputs]
    bottoms = [first, *(net._one(*fit) for _ in range(net._one(0, 1, 1, 2)))]
    channels = sum(net.shapes[b][1] for b in bottoms)
    return "Concat", bottoms, "", [(n, channels, *size)], lambda *x: [arrangement.concat(x, 1)]


def slices(net: RandomNet) -> Parts:
    bottom = net._blob()
    if bottom is None or net.shapes[bottom][1] < 2:
        return None
    n, c, *size = net.shapes[bottom]
    points = sorted({int(p) for p in net.draw.integers(1, c, net._one(1, 1, 2))} if c <= 16 else {16})
    fields = f"slice_param {{ axis: 1 {' '.join(f'slice_point: {p}' for p in points)} }}"
    shapes = [(n, end - start, *size) for start, end in zip([0, *points], [*points, c])]
    return "Slice", [bottom], fields, shapes, lambda x: arrangement.cut(x, 1, points)


def lrn(net: RandomNet) -> Parts:
    """Across channels or within; OpenCV knows no k but 1."""
    bottom, size = net._blob(), net._one(1, 3, 5)
    if bottom is None:
        return None
    alpha, beta, k = net._one(1e-4, 0.05, 1.0), net._one(0.5, 0.75, 1.0), 2.0 if net.draw.random() < 0.1 else 1.0
    within = net.draw.random() < 0.3 and size <= min(net.shapes[bottom][2:])
    region = "WITHIN_CHANNEL" if within else "ACROSS_CHANNELS"
    fields = f"lrn_param {{ local_size: {size} alpha: {alpha} beta: {beta} k: {k} norm_region: {region} }}"
    across = lambda x: [normalization.lrn_across(x, size, alpha, beta, k)]  # noqa: E731
    compute = (lambda x: [normalization.lrn_within(x, size, alpha, beta)]) if within else across
    return "LRN", [bottom], fields, [net.shapes[bottom]], compute


def inner_product(net: RandomNet) -> Parts:
    bottom, m = net._blob(0), net._one(1, 3, 10, 17)
    if bottom is None:
        return None
    n, *rest = net.shapes[bottom]
    k = int(np.prod(rest))
    w, b = net._normal(m, k, scale=k**-0.5), net._normal(m) if net.draw.random() < 0.7 else None
    fields = f"inner_product_param {{ num_output: {m} bias_term: {str(b is not None).lower()} }}"
    compute = lambda x: [elementwise.inner_product(x, w, b, 1)]  # noqa: E731
    return "InnerProduct", [bottom], fields, [(n, m)], compute, (w,) if b is None else (w, b)


def flatten(net: RandomNet) -> Parts:
    bottom = net._blob()
    if bottom is None:
        return None
    shape = arrangement.flattened(net.shapes[bottom])
    return "Flatten", [bottom], "", [shape], lambda x: [arrangement.with_shape(x, shape)]


def softmax(net: RandomNet) -> Parts:
    bottom = net._blob(0)
    return bottom and ("Softmax", [bottom], "", [net.shapes[bottom]], lambda x: [normalization.softmax(x, 1)])


FIRST: tuple[Callable[..., Any], ...] = (convolution, convolution, convolution, pooling, split)
TABLE: dict[Callable[[RandomNet], Any], int] = {
    convolution: 22, relu: 14, batch_norm: 7, scale: 7, pooling: 10, eltwise: 9, concat: 8, slices: 5, split: 5,
    deconvolution: 3, inner_product: 3, lrn: 3, prelu: 2, activation: 3, dropout: 2, flatten: 2, softmax: 3,
}  # fmt: skip
