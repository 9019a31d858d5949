"""Valid files of every kind that tools/fuzz.py damages: generated here, or shipped."""

from __future__ import annotations

import io
import struct
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from chai import Net
from chai.artifact.save import save
from chai.parser.schema import message_class
from chai.util.data.journal import Journal
from tests.onnx.networks import NETWORKS
from tests.onnx.test_match import MATCHES
from tests.onnx.test_quantised import qdq, qlinear
from tests.passes.common import network

ROOT = Path(__file__).resolve().parent.parent
ENDINGS = {
    "prototxt": ".prototxt",
    "upgrade": ".prototxt",  # V0 and V1 networks
    "caffemodel": ".caffemodel",
    "onnx": ".onnx",
    "npy": ".npy",
    "card": ".toml",
    "mean": ".binaryproto",
    "journal": ".jsonl",
    "list": ".csv",
    "overlay": ".json",
    "kernels": ".xml",
    "jpeg": ".jpg",
    "png": ".png",
    "bmp": ".bmp",
    "ppm": ".ppm",
    "compiled": ".chai",
}
RUN = {"network": "net", "images": "0" * 64}  # identity of the journals
LARGEST = 2 << 20  # most bytes of a seed
CONV = "convolution_param {{ num_output: {} kernel_size: {} pad: {} stride: {} group: {} }}"
# networks to compile, which have every kind of operation (chai/kernels/native/table.py): lines and size of the input
COMPILED = {
    "depthwise": (
        f"""c1 Convolution data -> c1 : {CONV.format(24, 3, 1, 2, 1)}
        r1 ReLU c1 -> c1
        d1 Convolution c1 -> d1 : {CONV.format(24, 3, 1, 1, 24)}
        r2 ReLU d1 -> d1 : relu_param {{ negative_slope: 0.1 }}
        c2 Convolution d1 -> c2 : {CONV.format(40, 1, 0, 1, 1)}
        d2 Convolution c2 -> d2 : {CONV.format(40, 3, 1, 2, 40)}
        pr PReLU d2 -> pr
        p1 Pooling pr -> p1 : pooling_param {{ pool: AVE global_pooling: true }}""",
        (2, 3, 23, 31),
    ),
    "tiles": (
        f"""c1 Convolution data -> c1 : {CONV.format(32, 3, 1, 1, 1)}
        c2 Convolution c1 -> c2 : {CONV.format(32, 3, 1, 1, 1)}
        el Eltwise c1 c2 -> el
        re ReLU el -> el
        c3 Convolution el -> c3 : {CONV.format(48, 3, 1, 1, 1)}
        p1 Pooling c3 -> p1 : pooling_param {{ pool: MAX kernel_size: 3 stride: 2 }}""",
        (2, 3, 29, 26),
    ),
    "dense": (
        f"""c1 Convolution data -> c1 : {CONV.format(64, 5, 2, 2, 2)}
        p1 Pooling c1 -> p1 : pooling_param {{ pool: AVE kernel_size: 3 stride: 1 pad: 1 }}
        f1 InnerProduct p1 -> f1 : inner_product_param {{ num_output: 300 weight_filler {{ type: "xavier" }} }}
        r1 ReLU f1 -> f1
        f2 InnerProduct f1 -> f2 : inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }}
        s1 Softmax f2 -> s1""",
        (1, 4, 16, 15),
    ),
    "branches": (
        f"""c1 Convolution data -> c1 : {CONV.format(16, 1, 0, 1, 1)}
        c2 Convolution data -> c2 : {CONV.format(24, 3, 2, 1, 1)[:-1]} dilation: 2 }}
        cc Concat c1 c2 -> cc
        sl Slice cc -> a b : slice_param {{ slice_point: 16 }}
        p1 Pooling b -> p1 : pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }}
        sg Sigmoid a -> sg
        c3 Convolution sg -> c3 : {CONV.format(8, 3, 1, 1, 4)}
        fl Flatten c3 -> fl""",
        (3, 5, 9, 12),
    ),
}
V1 = b"""name: "v1"
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "c" type: CONVOLUTION bottom: "data" top: "c" blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layers { name: "r" type: RELU bottom: "c" top: "c" }
layers { name: "p" type: POOLING bottom: "c" top: "p" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layers { name: "i" type: INNER_PRODUCT bottom: "p" top: "i" inner_product_param { num_output: 5 } }
layers { name: "s" type: SOFTMAX bottom: "i" top: "s" include { phase: TEST } }
"""
V0 = b"""name: "v0"
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "pad" type: "padding" pad: 1 } bottom: "data" top: "pad" }
layers { layer { name: "c" type: "conv" num_output: 4 kernelsize: 3 stride: 1 group: 1 biasterm: true
  weight_filler { type: "gaussian" std: 0.01 } blobs_lr: 1. weight_decay: 1. } bottom: "pad" top: "c" }
layers { layer { name: "r" type: "relu" } bottom: "c" top: "c" }
layers { layer { name: "p" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "c" top: "p" }
layers { layer { name: "n" type: "lrn" local_size: 5 alpha: 0.0001 beta: 0.75 } bottom: "p" top: "n" }
layers { layer { name: "d" type: "dropout" dropout_ratio: 0.5 } bottom: "n" top: "n" }
layers { layer { name: "i" type: "innerproduct" num_output: 5 } bottom: "n" top: "i" }
layers { layer { name: "s" type: "softmax" } bottom: "i" top: "s" }
"""
CARD = b"""title = "A network"
labels = ["cat", 'dog', "caf\\u00e9", "a.b.c"]

[preprocess]
resize = [256, 256]
crop = [224, 224]
channels = "BGR"
mean = [104, 117.5, 1.23e2]
raw_scale = 255.0
scale = 0.017

[weights]
file = "net.caffemodel"
urls = ["https://example.org/net.caffemodel"]
sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
size = 12345
source = "its page"
"""
LIST = b"""CONV,224,224,3,7,7,2,2,3,3,112,112,64,1,1
BN,112,112,64
RELU
MAXPOOL,112,112,64,3,3,2,2,0,0,56,56,64
CONV3D,56,56,64,3,3,1,1,1,1,56,56,64,2,1
ELTWISE,56,56,64
"AVEPOOL", 7,7,64,7,7,1,1,0,0,1,1,64
SOFTMAX
"""
KERNELS = b"""<?xml version="1.0"?>
<CustomLayer name="A" type="SimpleGPU" version="1">
  <Kernel entry="a">
    <Source filename="a.cl"/>
    <Define name="SLOPE" type="float" param="negative_slope" default="0.5"/><Define name="S" type="int[]" default="1,2"/>
  </Kernel>
  <Buffers>
    <Tensor arg-index="0" type="input" port-index="0" format="BFYX"/><Data name="weights" arg-index="1"/>
    <Tensor arg-index="2" type="output" port-index="0" format="byxf"/>
  </Buffers>
  <CompilerOptions options="-cl-mad-enable"/>
  <WorkSizes global="(X+7)/8*8,Y,B*F" local="8,1,1" dim="input,0"/>
</CustomLayer>
<!-- and another -->
<CustomLayer name="caf\xc3\xa9" type="MVCL" version="1" max-shaves="2" stage="0">
  <Kernel entry="b"><Source filename="a.bin"/></Kernel>
  <Parameters>
    <Tensor arg-name="x" type="input" port-index="0"/><Tensor arg-name="y" type="output" port-index="0"/>
    <Tensor arg-name="s" type="output_buffer" port-index="0" dim="output,0" size="Y*F*4"/>
    <Scalar arg-name="n" type="int" port-index="0" source="I.X"/><Scalar arg-name="k" type="float" source="scale"/>
  </Parameters>
</CustomLayer>
"""
SOURCE = """// of KERNELS, as a.cl beside it
__kernel void a(__global const float* x, __global const float* w, __global float* y) {}
__kernel void b(__global const half* x, __global half* y, __global float* s, int n, float k) {}
"""


def seeds(paths: list[Path], kinds: Collection[str]) -> dict[str, list[bytes]]:
    """Return contents by kind: generated ones, shipped ones, and networks in the given files and folders.

    Networks are compiled only if that is one of ``kinds``: it takes seconds.
    """
    files = [f for folder in ("prototxt", "hw_overlays") for f in sorted((ROOT / folder).rglob("*"))]
    for place in paths:
        files += sorted(place.rglob("*")) if place.is_dir() else [place]
    examples: dict[str, list[bytes]] = {kind: [] for kind in ENDINGS}
    for file in files:
        kind = next((k for k, ending in ENDINGS.items() if ending == file.suffix), None)
        if kind is not None and file.is_file() and 0 < file.stat().st_size < LARGEST and "schema" not in file.name:
            data = file.read_bytes()
            examples["upgrade" if kind == "prototxt" and b"layers" in data else kind].append(data)
    examples["upgrade"] += [V0, V1]
    examples["card"].append(CARD)
    examples["list"].append(LIST)
    examples["kernels"].append(KERNELS)
    examples["onnx"] += [write() for write in NETWORKS.values()] + [qdq("uint8", 128, 0, relu=True), qlinear()]
    examples["onnx"] += [write() for write, _ in MATCHES.values()]
    examples["npy"] += arrays()
    examples["mean"] += means()
    examples["journal"] += journals()
    for kind, pictures in images().items():
        examples[kind] += pictures
    if "compiled" in kinds:
        examples["compiled"] += compiled()
    return examples


def compiled() -> list[bytes]:
    """Return the shipped network and ``COMPILED``, compiled for the default overlay."""
    examples = []
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.chai"
        of = [partial(network, Path(folder), *about) for about in COMPILED.values()]
        for make in (partial(Net, "digits", batch=2), *of):
            with make(device="emulator") as net:
                net.calibrate(
                    *(draw.standard_normal(shape).astype(np.float32) for shape in map(net.shapes.get, net.inputs))
                )
                save(net, path)
            examples.append(path.read_bytes())
    return examples


def arrays() -> list[bytes]:
    """Return small arrays of several element types and orders."""
    examples = []
    for dtype in ("<f4", ">f4", "<f8", "<f2", "|u1", "<i8", "|b1"):
        for order, shape in (("C", (3, 4, 5)), ("F", (1, 3, 8, 8)), ("C", (7,)), ("C", ())):
            stream = io.BytesIO()
            np.save(stream, np.asarray(np.ones(shape), dtype, order=order))  # type: ignore[call-overload]
            examples.append(stream.getvalue())
    return examples


def means() -> list[bytes]:
    """Return mean images, with a BlobShape and with the legacy sizes, single and double."""
    examples = []
    for legacy in (False, True):
        for name in ("data", "double_data"):
            blob: Any = message_class("BlobProto")()
            if legacy:
                blob.num, blob.channels, blob.height, blob.width = 1, 3, 4, 5
            else:
                blob.shape.dim.extend([3, 4, 5])
            getattr(blob, name).extend(range(60))
            examples.append(blob.SerializeToString())
    return examples


def images() -> dict[str, list[bytes]]:
    """Return small pictures by kind, of every mode that it has, with metadata and without."""
    draw = np.random.default_rng(0)
    whole = Image.fromarray(draw.integers(0, 255, (29, 23, 4), np.uint8))
    exif = Image.Exif()
    exif[0x0112], exif[0x0131] = 6, "a program"
    modes = {
        "jpeg": ("L", "RGB", "CMYK"),
        "png": ("1", "L", "P", "LA", "RGB", "RGBA", "I;16"),
        "bmp": ("1", "P", "RGB"),
    }
    examples: dict[str, list[bytes]] = {}
    for kind in modes:
        pictures = [whole.convert("RGB").convert(mode) for mode in modes[kind]]
        described: dict[str, Any] = (
            {} if kind == "bmp" else {"exif": exif, "icc_profile": bytes(99), "comment": b"none"}
        )
        examples[kind] = [_encoded(picture, kind) for picture in pictures]
        examples[kind] += [_encoded(picture, kind, progressive=True, **described) for picture in pictures]
    examples["png"].append(_encoded(Image.fromarray(draw.integers(0, 65535, (19, 13), np.uint16)), "png"))
    palette = bytes(4 * 256)
    runs = b"".join(b"\x05\x07\0\x03abc\0\0\0" for _ in range(9)) + b"\0\1"
    header = struct.pack("<IiiHHIIiiII", 40, 8, 9, 1, 8, 1, len(runs), 0, 0, 256, 0)
    examples["bmp"].append(b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + len(palette)) + header + palette + runs)
    rows = whole.convert("L").tobytes()
    examples["ppm"] = [
        b"P1\n# ten\n5 2\n0110100101",
        b"P4 13 7\n" + rows[:14],
        b"P2\n5 4\n9\n" + b"1 2 3 4 5 #\n" * 4,
        b"P3 2 2 300 1 2 3 4 5 6 7 8 9 10 11 300",
        b"P5\n# a comment\n23 29\n255\n" + rows,
        b"P6 7 5 4095\n" + bytes(210),
    ]
    return examples


def _encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def journals() -> list[bytes]:
    """Return the journal of a run, complete and truncated."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with Journal(path, RUN) as journal:
            journal.add([{"image": i, "float": {"top": [i, 2, 3], "logits": 0.5}} for i in range(5)])
        whole = path.read_bytes()
    return [whole, whole[:-9]]
