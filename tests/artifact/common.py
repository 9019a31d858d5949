"""Small compiled networks, and a reader and a writer of their files that share no code with chai's."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import chai
from chai.artifact.container import VERSION
from chai.artifact.save import save
from chai.plugins.definition import CustomOptions, CustomType
from tests.passes.common import AFFINE, AVE, CONV, DEEP, GLOBAL, MAX, network

Array = np.ndarray
PREFIX = struct.Struct("<8sIIQ")
SOFT = "softmax_param { axis: 1 }"
PLACES = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"


def mirror(x: chai.xChangeLayer, factor: float) -> None:
    """A custom layer that no other layer could stand in for."""
    x.top[0][...] = factor * x.bottom[0][:, ::-1] + 0.125


def negate(x: chai.xChangeLayer) -> None:
    """A custom layer on the overlay's codes."""
    x.top[0][...] = -np.maximum(x.bottom[0][:, ::-1], -127)


def custom(version: str = "3") -> dict[str, CustomType]:
    """Custom types of these networks."""
    floats = CustomType("mirror", mirror, False, CustomOptions(args={"factor": 1.0}, version=version))
    codes = CustomType("negate", negate, False, CustomOptions(version=version))
    codes.impl("codes", dtype="int8", jit=False)(negate)
    for custom_type in (floats, codes):
        custom_type.shape(lambda x: [tuple(x.input_dims[0])])
    return {"mirror": floats, "negate": codes}


NETS = {
    "host layers": f"""c1 Convolution data -> c1 : {CONV}
        r1 ReLU c1 -> c1
        m1 mirror c1 -> m1 : user_defined_layer: true mirror_param {{ factor: 0.75 }}
        p1 Pooling m1 -> p1 : {MAX}
        pr Normalize p1 -> pr
        c2 Convolution pr -> c2 : {CONV}
        out Softmax c2 -> out""",
    "codes": f"""c1 Convolution data -> c1 : {CONV}
        n1 negate c1 -> n1 : user_defined_layer: true
        c2 Convolution n1 -> c2 : {CONV}""",
    "several outputs": f"""c1 Convolution data -> c1 : {CONV}
        p1 Pooling c1 -> p1 : {MAX}
        p2 Pooling c1 -> p2 : {AVE}
        s1 Softmax p2 -> s1
        c2 Convolution p2 -> c2 : {CONV}""",
    "parts": f"""c1 Convolution data -> c1 : {DEEP}
        c2 Convolution data -> c2 : {DEEP}
        cc Concat c1 c2 -> cc
        bn BatchNorm cc -> bn : {GLOBAL}
        sc Scale bn -> sc : {AFFINE}
        sl Slice sc -> a b : slice_param {{ slice_point: 16 }}
        el Eltwise a b -> el
        re ReLU el -> el : relu_param {{ negative_slope: 0.25 }}
        p1 Pooling b -> p1 : {AVE}""",
    "slices of concats": f"""c1 Convolution data -> c1 : {DEEP}
        c2 Convolution data -> c2 : {DEEP}
        cc Concat c1 c2 -> cc
        sl Slice cc -> a b : slice_param {{ slice_point: 8 }}
        p1 Pooling b -> p1 : {MAX}
        c3 Convolution a -> c3 : {CONV}""",
    "pieces": f"""c1 Convolution data -> c1 : convolution_param {{ num_output: 16 kernel_size: 1 pad: 2 }}
        c2 Convolution c1 -> c2 : convolution_param {{ num_output: 24 kernel_size: 3 pad: 1 }}
        p1 Pooling c2 -> p1 : pooling_param {{ pool: MAX kernel_size: 3 stride: 1 }}
        c3 Convolution p1 -> c3 : {DEEP}
        p2 Pooling c3 -> p2 : {AVE}""",
    "places of maxima": f"""c1 Convolution data -> c1 : {CONV}
        p1 Pooling c1 -> p1 m1 : {PLACES}
        c2 Convolution p1 -> c2 : {CONV}
        u1 Upsample c2 m1 -> u1 : upsample_param {{ upsample_h: 5 upsample_w: 7 }}""",
    "places on the overlay": f"""c1 Convolution data -> c1 : convolution_param {{ num_output: 8 kernel_size: 2 }}
        p1 Pooling c1 -> p1 m1 : {PLACES}
        c2 Convolution p1 -> c2 : convolution_param {{ num_output: 8 kernel_size: 1 }}
        u1 Upsample c2 m1 -> u1 : upsample_param {{ upsample_h: 4 upsample_w: 6 }}
        c3 Convolution u1 -> c3 : {CONV}""",
    "flat": f"""c1 Convolution data -> c1 : {CONV}
        re Reshape c1 -> re : reshape_param {{ shape {{ dim: -1 }} }}""",
}


def data(seed: int = 0, images: int = 2) -> Array:
    """Images for any of ``NETS``."""
    return np.random.default_rng(seed).standard_normal((images, 3, 5, 7)).astype(np.float32)


def compiled(folder: Path, name: str, **options: Any) -> tuple[chai.Net, Path]:
    """A network of ``NETS`` on the emulator, and its compiled file."""
    path = folder / "net.chai"
    net = network(folder, NETS[name], device="emulator", custom=custom(), **options)
    net.calibrate(data())
    save(net, path)
    return net, path


def load(path: Path, **options: Any) -> chai.Net:
    return chai.Net(path, **{"custom": custom(), **options})


# -- the file, by the words of chai/artifact/container.py


def parts(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header without "sections", and sections."""
    content = path.read_bytes()
    _, _, _, length = PREFIX.unpack_from(content)
    header = json.loads(content[PREFIX.size : PREFIX.size + length])
    begin = -(-(PREFIX.size + length) // 64) * 64
    table = header.pop("sections")
    return header, {n: content[begin + e["offset"] : begin + e["offset"] + e["bytes"]] for n, e in table.items()}


def assembled(
    header: Any,
    sections: Mapping[str, bytes],
    table: Any = None,
    text: bytes | None = None,
    magic: bytes = b"\x89chai\r\n\x1a",
    version: int = VERSION,
) -> bytes:
    """A file with right checksums, whatever stands in it; ``table`` and ``text`` instead of the right ones."""
    body, entries = b"", {}
    for name, content in sections.items():
        entries[name] = {"offset": len(body), "bytes": len(content), "crc": zlib.crc32(content)}
        body += content + bytes(-len(content) % 64)
    if entries:
        last = list(sections)[-1]
        body = body[: entries[last]["offset"] + len(sections[last])]
    if text is None:
        text = json.dumps({**header, "sections": entries if table is None else table}).encode()
    prefix = PREFIX.pack(magic, version, zlib.crc32(text), len(text))
    return prefix + text + bytes(-(len(prefix) + len(text)) % 64) + body


def save_with_pieces(net: chai.Net, path: Path, change: Callable[[list[list[int]]], Any]) -> None:
    """Save a network of one segment with other pieces of its Tasks."""
    save(net, path)
    header, sections = parts(path)
    (step,) = (step for step in header["steps"] if "tasks" in step)
    change(step["pieces"])
    path.write_bytes(assembled(header, sections))
