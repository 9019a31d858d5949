"""Small networks whose passes have every kind of step, in sizes from small to large: a host model is taken from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from ...blob import Shape, show
from ...parser.caffemodel import write_caffemodel
from ...util.lazy_numpy import np

Window = tuple[int, int, int]  # kernel, stride and pad of a convolution
PACKED: tuple[Shape, ...] = (
    (16, 1, 1), (520, 1, 1), (40, 5, 3), (20, 9, 11), (16, 64, 6),
    (136, 14, 10), (17, 33, 35), (48, 29, 41), (64, 50, 54),
)  # fmt: skip
UNPACKED: tuple[Shape, ...] = (
    (10, 1, 1), (126, 2, 2), (1000, 1, 1), (12, 10, 7), (84, 19, 17),
    (24, 3, 60), (33, 36, 30), (256, 18, 20), (64, 52, 56),
)  # fmt: skip
UNFOLDED: tuple[tuple[Shape, Window], ...] = (  # with kernel, stride and pad
    ((1, 8, 8), (3, 1, 1)), ((3, 20, 26), (5, 1, 2)), ((3, 66, 50), (3, 2, 0)), ((3, 90, 100), (3, 2, 1)),
    ((3, 113, 121), (3, 2, 1)), ((3, 64, 96), (11, 4, 0)), ((3, 129, 121), (7, 2, 3)), ((1, 160, 150), (5, 2, 2)),
    ((3, 200, 232), (7, 2, 3)), ((3, 270, 250), (3, 2, 1)),
)  # fmt: skip
FIELDS: tuple[Shape, ...] = ((6, 4, 3), (24, 15, 13), (16, 60, 34), (96, 30, 28))  # of layers on pixels
LAYERS = {  # on each of the fields
    "LRN": "lrn_param { local_size: 5 }",
    "Pooling": "pooling_param { pool: AVE kernel_size: 3 stride: 2 }",
    "ReLU": "",
    "PReLU": "",
    "Sigmoid": "",
    "TanH": "",
    "Power": "power_param { scale: 0.5 shift: 1 }",
    "BatchNorm": "batch_norm_param { use_global_stats: true }",
    "Scale": "scale_param { bias_term: true }",
    "Normalize": "norm_param { across_spatial: false channel_shared: false scale_filler { value: 1 } }",
    "Permute": "permute_param { order: 0 order: 2 order: 3 order: 1 }",
    "Flatten": "",
    "Reshape": "reshape_param { shape { dim: 0 dim: -1 dim: 1 } }",
    "Dropout": "",
}
PAIRS = {"Eltwise": "", "Concat": ""}  # of a field with itself
POINT, SMALL, DEPTHWISE = (1, 1, 0), (3, 1, 1), 0
CONVOLVED: tuple[tuple[Shape, int, Window], ...] = (  # with outputs; of each kind of ``layer_kind`` from small to large
    ((8, 6, 5), 4, POINT), ((32, 14, 10), 48, POINT), ((150, 7, 7), 60, POINT),
    ((64, 28, 24), 24, POINT), ((384, 14, 13), 256, POINT), ((16, 38, 42), 64, POINT),
    ((16, 13, 11), 17, SMALL), ((24, 15, 13), 90, SMALL), ((64, 28, 26), 64, SMALL),
    ((160, 14, 12), 112, SMALL), ((17, 50, 60), 20, SMALL), ((4, 7, 5), 3, SMALL),
    ((3, 66, 50), 24, (3, 2, 0)), ((16, 20, 18), 24, (5, 1, 2)), ((3, 90, 100), 32, (7, 2, 3)),
    ((96, 13, 15), 70, (3, 2, 1)), ((32, 40, 38), 48, (5, 2, 2)), ((64, 20, 19), 128, (3, 2, 1)),
    ((6, 5, 7), DEPTHWISE, SMALL), ((24, 15, 13), DEPTHWISE, SMALL), ((64, 28, 26), DEPTHWISE, SMALL),
    ((96, 30, 28), DEPTHWISE, (3, 2, 1)), ((256, 14, 14), DEPTHWISE, SMALL),
)  # fmt: skip
ROWS: tuple[tuple[int, ...], ...] = ((1, 10), (1, 1000), (150, 7), (500, 21), (1300, 4))  # of Softmax
PRODUCTS = ((30, 5), (128, 10), (400, 90), (1000, 300), (900, 1000))  # values and outputs of an InnerProduct
CHAIN = (3, 12, 28, 50)  # layers one after another, which are hardly more than a step
FILLER = 'weight_filler { type: "gaussian" std: 0.01 }'
HEADS: tuple[Sequence[tuple[int, int]], ...] = (((3, 4), (5, 7)), ((6, 7), (9, 10), (12, 11), (15, 14)))


@dataclass(frozen=True)
class HostProbe:
    """A network, the engines of layers that are to be on the host, and values and outputs of those with weights in a file."""

    name: str
    text: str
    engine: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def write(self, folder: Path) -> tuple[Path, Path | None]:
        """Write its prototxt, and a caffemodel if it has weights, into a folder; return their paths."""
        path, model = folder / f"{self.name}.prototxt", folder / f"{self.name}.caffemodel"
        path.write_text(self.text, encoding="utf-8")
        if not self.weights:
            return path, None
        random = np.random.default_rng(0)
        blobs = {
            name: [random.random((m, k), np.float32), random.random(m, np.float32)]
            for name, (k, m) in self.weights.items()
        }
        write_caffemodel(model, self.name, [(name, "gemm", arrays) for name, arrays in blobs.items()])
        return path, model


def probes() -> list[HostProbe]:
    """Return the networks."""
    return [
        _network("conversions", _conversions()),
        _network("unfolded", _unfolded()),
        _network("fields", _fields()),
        _network("convolutions", _convolutions()),
        _network("vectors", _vectors()),
        replace(_network("gemm", _gemm()), weights={f"gemm{i}": sizes for i, sizes in enumerate(PRODUCTS)}),
        *(_network(f"heads{len(sizes)}", _heads(sizes)) for sizes in HEADS),
        *(_network(f"chain{count}", _chain(count)) for count in CHAIN),
        *(_network(f"lanes{count}", [*_chain(count), *_branch(count)]) for count in CHAIN[:3]),
        _network("codes", _codes()),
    ]


Line = tuple[str, bool]  # of a prototxt, and whether its layer is to be on the host


def _network(name: str, lines: Iterable[Line]) -> HostProbe:
    lines = list(lines)
    host = [line.split('"')[1] for line, here in lines if here]
    text = "\n".join([f'name: "{name}"', *(line for line, _ in lines), ""])
    return HostProbe(name, text, dict.fromkeys(host, "host"))


def _input(name: str, *shape: int) -> Line:
    dims = " ".join(f"dim: {n}" for n in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}', False


def _layer(name: str, type: str, bottoms: Sequence[str], parameters: str = "", host: bool = True) -> Line:
    reads = " ".join(f'bottom: "{blob}"' for blob in bottoms)
    return f'layer {{ name: "{name}" type: "{type}" {reads} top: "{name}" {parameters} }}', host


def _conv(name: str, bottom: str, outputs: int, window: Window = POINT, host: bool = False, group: int = 1) -> Line:
    sizes = "num_output: {} group: {} kernel_size: {} stride: {} pad: {}".format(outputs, group, *window)
    return _layer(name, "Convolution", [bottom], f"convolution_param {{ {sizes} {FILLER} }}", host)


def _conversions() -> Iterator[Line]:
    for i, (packed, unpacked) in enumerate(zip(PACKED, UNPACKED)):
        yield _input(f"a{i}", 1, *packed)
        yield _conv(f"b{i}", f"a{i}", 8)
        yield _input(f"c{i}", 1, 16, *unpacked[1:])
        yield _conv(f"d{i}", f"c{i}", unpacked[0])


def _unfolded() -> Iterator[Line]:
    for i, (shape, window) in enumerate(UNFOLDED):
        yield _input(f"a{i}", 1, *shape)
        yield _conv(f"b{i}", f"a{i}", 8, window)


def _fields() -> Iterator[Line]:
    for i, shape in enumerate(FIELDS):
        blob = f"x{show(shape)}"
        yield _input(blob, 1, *shape)
        yield from (_layer(f"{type}{i}", type, [blob], parameters) for type, parameters in LAYERS.items())
        yield from (_layer(f"{type}{i}", type, [blob] * (2 + i), parameters) for type, parameters in PAIRS.items())


def _convolutions() -> Iterator[Line]:
    for i, (shape, outputs, window) in enumerate(CONVOLVED):
        outputs, group = (shape[0], shape[0]) if outputs == DEPTHWISE else (outputs, 1)
        yield _input(f"y{i}", 1, *shape)
        yield _conv(f"conv{i}", f"y{i}", outputs, window, True, group)


def _vectors() -> Iterator[Line]:
    for i, shape in enumerate(ROWS):
        yield _input(f"r{i}", 1, *shape)
        yield _layer(f"softmax{i}", "Softmax", [f"r{i}"], "softmax_param { axis: 2 }")
    for i, (values, outputs) in enumerate(PRODUCTS):
        yield _input(f"v{i}", 1, values)
        yield _layer(f"fc{i}", "InnerProduct", [f"v{i}"], f"inner_product_param {{ num_output: {outputs} {FILLER} }}")


def _gemm() -> Iterator[Line]:
    """Yield chai's fully connected layer that is a custom layer."""
    for i, (values, outputs) in enumerate(PRODUCTS):
        arguments = f"user_defined_layer: true xcustom_param {{ float_args: {outputs} top_dim: 1 top_dim: {outputs} }}"
        yield _input(f"v{i}", 1, values)
        yield _layer(f"gemm{i}", "gemm", [f"v{i}"], arguments, host=False)


def _heads(sizes: Sequence[tuple[int, int]]) -> Iterator[Line]:
    """Yield what SSD has after its convolutions, which the overlay computes."""
    layer, classes, boxes = partial(_layer, host=False), 21, 6
    prior = "min_size: 20 max_size: 40 aspect_ratio: 2 aspect_ratio: 3 flip: true"
    variances = " ".join(f"variance: {v}" for v in (0.1, 0.1, 0.2, 0.2))
    yield _input("image", 1, 3, 96, 96)
    for i, (height, width) in enumerate(sizes):
        yield _input(f"x{i}", 1, 32, height, width)
        for kind, outputs in (("loc", 4), ("conf", classes)):
            name = f"{kind}{i}"
            yield _conv(name, f"x{i}", outputs * boxes)
            yield layer(f"{name}_perm", "Permute", [name], LAYERS["Permute"])
            yield layer(f"{name}_flat", "Flatten", [f"{name}_perm"], "flatten_param { axis: 1 }")
        yield layer(f"prior{i}", "PriorBox", [f"loc{i}", "image"], f"prior_box_param {{ {prior} {variances} }}")
    for kind, axis in (("loc", 1), ("conf", 1), ("prior", 2)):
        blobs = [f"{kind}{i}" + "_flat" * (kind != "prior") for i in range(len(sizes))]
        yield layer(kind, "Concat", blobs, f"concat_param {{ axis: {axis} }}")
    yield layer("scores", "Reshape", ["conf"], f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}")
    yield layer("chances", "Softmax", ["scores"], "softmax_param { axis: 2 }")
    yield layer("flat", "Flatten", ["chances"], "flatten_param { axis: 1 }")
    kept = (
        "nms_param { nms_threshold: 0.45 top_k: 100 } code_type: CENTER_SIZE keep_top_k: 100 confidence_threshold: 0.25"
    )
    output = f"num_classes: {classes} share_location: true background_label_id: 0 {kept}"
    yield layer("boxes", "DetectionOutput", ["loc", "flat", "prior"], f"detection_output_param {{ {output} }}")


def _chain(count: int) -> Iterator[Line]:
    """Yield a convolution and ``count`` layers that take next to no time each."""
    yield _input("data", 1, 16, 5, 4)
    yield _conv("conv", "data", 12)
    yield from (_layer(name, "TanH", [before]) for before, name in pairwise(["conv", *(f"f{i}" for i in range(count))]))


def _branch(count: int) -> Iterator[Line]:
    """Yield a branch of the host's own, parallel to a chain."""
    yield _layer("aside", "TanH", ["data"])
    yield _layer("both", "Concat", ["aside", f"f{count - 1}"], "concat_param { axis: 1 }")


def _codes() -> Iterator[Line]:
    """Yield segments whose codes another segment reads, in sizes from small to large."""
    for i, shape in enumerate(PACKED[1::2]):
        yield _input(f"a{i}", 1, *shape)
        yield _conv(f"b{i}", f"a{i}", 24)
        yield _layer(f"h{i}", "TanH", [f"b{i}"])
        yield _layer(f"s{i}", "Eltwise", [f"b{i}", f"h{i}"], host=False)
