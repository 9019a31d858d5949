"""Random networks of what an overlay's later units run, by seed, in the lines of ``tests.passes.common.network``.

Sums of several blobs, products, maxima, vectors, functions of one number, PReLU, LRN, upsampling, Deconvolutions, squares of
pixels, channels and borders that only move, places of maxima, dilated and depthwise convolutions.
"""

from __future__ import annotations

from random import Random

from tests.lookups import FUNCTIONS, SAFE

Shape = tuple[int, int, int]
INPUT = 2, 8, 6, 8


class UnitNet:
    """The network of a seed: ``lines``, whose input is ``data`` of the shape INPUT; ``types`` of its layers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.shapes: dict[str, Shape] = {}
        self.types: list[str] = []
        self.convolution("data", (INPUT[1], *INPUT[2:]))
        for _ in range(self.random.randint(3, 7)):
            blob = self.random.choice(list(self.shapes)[-2:])
            self.random.choice(KINDS)(self, blob, self.shapes[blob])
        self.convolution(blob := list(self.shapes)[-1], self.shapes[blob])

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def add(self, type: str, bottoms: str, shape: Shape, fields: str = "") -> str:
        """Add a layer with one top, and return that."""
        name = f"b{len(self.lines)}"
        self.lines.append(f"{name} {type} {bottoms} -> {name}" + (f" : {fields}" if fields else ""))
        self.types.append(type)
        self.shapes[name] = shape
        return name

    def one(self, *choices: int) -> int:
        """Choose a number."""
        return self.random.choice(choices)

    def convolution(self, blob: str, shape: Shape) -> str:
        """Plain, strided, depthwise or dilated; a ReLU, a leaky one or a PReLU may follow, in place."""
        c, h, w = shape
        m, group = (c, c) if self.random.random() < 0.2 else (self.one(3, 8, 16, 19), 1)
        k = self.one(1, 3, 3)
        d = self.one(1, 1, 2, 4) if k > 1 else 1
        s = self.one(1, 1, 2) if d == 1 else 1
        fields = f"num_output: {m} group: {group} kernel_size: {k} pad: {d * (k // 2)} stride: {s} dilation: {d}"
        size = [(n - 1) // s + 1 for n in (h, w)]
        top = self.add("Convolution", blob, (m, size[0], size[1]), f"convolution_param {{ {fields} }}")
        if self.random.random() < 0.5:
            type, fields = self.random.choice(
                [("ReLU", ""), ("ReLU", "relu_param { negative_slope: 0.2 }"), ("PReLU", "")]
            )
            self.lines.append(f"{top}r {type} {top} -> {top}" + (f" : {fields}" if fields else ""))
            self.types.append(type)
        return top

    def like(self, blob: str, shape: Shape) -> str:
        """Another blob of this shape: a convolution of the same, or a pooling."""
        if self.random.random() < 0.5:
            fields = f"num_output: {shape[0]} kernel_size: 1"
            return self.add("Convolution", blob, shape, f"convolution_param {{ {fields} }}")
        return self.add("Pooling", blob, shape, "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }")

    def eltwise(self, blob: str, shape: Shape) -> None:
        """A sum or a maximum of two to five, or a product of two."""
        operation = self.random.choice(["SUM", "SUM", "MAX", "PROD"])
        count = 1 if operation == "PROD" else self.one(1, 2, 2, 4)
        bottoms = [blob, *(self.like(blob, shape) for _ in range(count))]
        weights = [self.random.choice([1, 1, -1, 0.5]) for _ in bottoms] if operation == "SUM" else []
        fields = " ".join([f"operation: {operation}", *(f"coeff: {w}" for w in weights)])
        self.add("Eltwise", " ".join(bottoms), shape, f"eltwise_param {{ {fields} }}")

    def vector(self, blob: str, shape: Shape) -> None:
        """A number for each channel, as squeeze-and-excite networks make it."""
        small = self.add("Pooling", blob, (shape[0], 1, 1), "pooling_param { pool: AVE global_pooling: true }")
        fields = f"convolution_param {{ num_output: {shape[0]} kernel_size: 1 }}"
        number = self.add("Convolution", small, (shape[0], 1, 1), fields)
        number = self.add("Sigmoid", number, (shape[0], 1, 1))
        self.add(self.random.choice(["Mul", "Add"]), f"{blob} {number}", shape)

    def function(self, blob: str, shape: Shape) -> None:
        type, fields, _ = FUNCTIONS[self.random.choice(SAFE)]
        self.add(type, blob, shape, fields)

    def normalization(self, blob: str, shape: Shape) -> None:
        self.add("LRN", blob, shape, "lrn_param { local_size: 5 alpha: 0.1 beta: 0.75 }")

    def factors(self, blob: str, shape: Shape) -> None:
        """A factor and an addend, or a slope, for each channel, after a layer that has none."""
        blob = self.add("Pooling", blob, shape, "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }")
        type, fields = self.random.choice([("Scale", "scale_param { bias_term: true }"), ("PReLU", "")])
        self.add(type, blob, shape, fields)

    def upsample(self, blob: str, shape: Shape) -> None:
        if shape[1] * shape[2] <= 200:
            self.add("Upsample", blob, (shape[0], 2 * shape[1], 2 * shape[2]), "upsample_param { scale: 2 }")

    def deconvolution(self, blob: str, shape: Shape) -> None:
        """With phases of one size or not, of all channels or of each; other strides than a power of two."""
        c, h, w = shape
        s, k = self.one(1, 2, 2, 3), self.one(1, 2, 3, 4)
        p = self.one(0, (k - 1) // 2)
        m, group = (c, c) if self.random.random() < 0.25 else (self.one(2, 8, 11), 1)
        size = [s * (n - 1) + k - 2 * p for n in (h, w)]
        if size[0] * size[1] <= 600:
            fields = f"num_output: {m} group: {group} kernel_size: {k} stride: {s} pad: {p}"
            self.add("Deconvolution", blob, (m, size[0], size[1]), f"convolution_param {{ {fields} }}")

    def squares(self, blob: str, shape: Shape) -> None:
        """Four or nine times the channels, and squares of them."""
        s, channels = self.one(2, 2, 3), self.one(3, 8)
        if shape[1] * shape[2] > 100:
            return
        fields = f"convolution_param {{ num_output: {s * s * channels} kernel_size: 1 }}"
        blob = self.add("Convolution", blob, (s * s * channels, *shape[1:]), fields)
        form = self.random.choice(["DCR", "CRD"])
        fields = f"depth_to_space_param {{ block_size: {s} data_format: '{form}' }}"
        self.add("DepthToSpace", blob, (channels, shape[1] * s, shape[2] * s), fields)

    def places(self, blob: str, shape: Shape) -> None:
        """A pooling, a convolution, and its pixels back at the places of the maxima."""
        c, h, w = shape
        if h % 2 or w % 2:
            return
        name = f"b{len(self.lines)}"
        self.lines.append(
            f"{name} Pooling {blob} -> {name} {name}m : pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }}"
        )
        fields = f"convolution_param {{ num_output: {c} kernel_size: 1 }}"
        other = self.add("Convolution", name, (c, h // 2, w // 2), fields)
        self.add("Upsample", f"{other} {name}m", shape, "upsample_param { scale: 2 }")

    def channels(self, blob: str, shape: Shape) -> None:
        """Others beside them, in another order, or some of them."""
        c, *size = shape
        kind = self.random.choice(["Concat", "ShuffleChannel", "Slice"])
        if kind == "Concat":
            other = self.add("Convolution", blob, (5, *size), "convolution_param { num_output: 5 kernel_size: 1 }")  # type: ignore
            self.add("Concat", f"{blob} {other} {blob}", (2 * c + 5, *size))  # type: ignore[arg-type]
        elif kind == "ShuffleChannel" and c % 4 == 0:
            self.add(kind, blob, shape, "shuffle_channel_param { group: 4 }")
        elif c > 3:
            name = f"b{len(self.lines)}"
            self.lines.append(f"{name} Slice {blob} -> {name}a {name}b : slice_param {{ slice_point: 3 }}")
            self.types.append("Slice")
            self.add("Concat", f"{name}b {name}a", shape)

    def border(self, blob: str, shape: Shape) -> None:
        c, h, w = shape
        fields = " ".join(f"paddings: {n}" for n in (0, 0, 0, 0, 1, 0, 0, 2))
        self.add("Pad", blob, (c, h + 1, w + 2), f"pad_param {{ {fields} }}")


KINDS = [
    UnitNet.convolution,
    UnitNet.eltwise,
    UnitNet.eltwise,
    UnitNet.factors,
    UnitNet.vector,
    UnitNet.function,
    UnitNet.normalization,
    UnitNet.upsample,
    UnitNet.deconvolution,
    UnitNet.deconvolution,
    UnitNet.squares,
    UnitNet.places,
    UnitNet.channels,
    UnitNet.border,
]
