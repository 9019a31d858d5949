"""Bounds on the memory and time that a file can cost.

Files are untrusted, so every size in them is checked here before memory or time is spent.
A limit is raised by name: ``CHAI_LIMITS=text_bytes=100000000,layers=50000``.
"""

# annotations are types here, not texts, which typing would compile at every start

from functools import lru_cache
from typing import NamedTuple

from .env import env
from .errors import UsageError


class Limits(NamedTuple):
    """Each bound with its unit and reason."""

    text_bytes: int = 16 << 20  # prototxt file; scanning costs about 1 us per byte
    text_depth: int = 32  # nested messages; Caffe's own files reach 4
    text_values: int = 400_000  # fields and list items in one prototxt
    text_tokens: int = 2_000_000  # names, values, marks, blanks and comments, about 1 us each
    # of a compiled network; GoogLeNet's has 62 KB, and JSON becomes up to 25 times its text
    header_bytes: int = 2 << 20
    layers: int = 20_000
    views: int = 500  # blobs that a blob of a compiled network lies in, one in another
    accesses: int = 5_000_000  # runs of bytes that the Tasks of a network access in a device's memory, about 2 us each
    ports: int = 4_096  # bottoms or tops of one layer
    name_length: int = 1_024  # characters of a layer or blob name
    weight_bytes: int = (2 << 30) - 1  # caffemodel or ONNX file; protobuf's own bound
    wire_fields: int = 200_000  # fields walked in a caffemodel or ONNX file (an unpacked run of floats counts once)
    wire_depth: int = 8  # nested groups in unknown fields
    # computed from an ONNX file's constants while it is read, besides the file's own bytes
    folded_numbers: int = 16 << 20
    axes: int = 32  # Caffe's kMaxBlobAxes
    blob_elements: int = 2**31 - 1  # Caffe counts in int
    activation_bytes: int = 4 << 30  # blobs alive at once in a forward pass
    macs: int = 10**13  # multiply-accumulates of one forward pass
    boxes: int = 1_000_000  # priors of a detection layer
    scores: int = 100_000_000  # priors times classes
    xml_bytes: int = 1 << 20  # description of OpenCL layers; OpenVINO's own has 100 KB
    kernel_bytes: int = 4 << 20  # OpenCL source of one layer
    kernel_items: int = 1 << 32  # work items of one kernel
    kernel_seconds: int = 60  # time of one OpenCL layer; its first run includes the last part of its compilation
    build_seconds: int = 300  # compilation of one OpenCL layer
    custom_files: int = 100_000  # in a folder of custom layers whose code is compared; 3 us each to list
    card_bytes: int = 1 << 20  # the .toml of a network
    coco_bytes: int = 64 << 20  # COCO's annotations; those of val2017 have 20 MB
    coco_values: int = 3_500_000  # numbers, texts, lists and objects in them, of up to 64 bytes each
    image_bytes: int = 64 << 20
    image_pixels: int = 64 << 20  # of 12 bytes each while they are read, at most
    image_parts: int = 100_000  # chunks of a PNG, segments of a JPEG, about 1 us each
    image_scans: int = 64  # passes over the pixels of a JPEG, 40 ms each for the most pixels; programs write 1 to 12
    array_bytes: int = 1 << 30  # .npy inputs
    frame_pixels: int = 16 << 20  # of a video's frame; 4K has 8.3 million
    frame_seconds: int = 30  # until a video's next frame comes
    video_bytes: int = 2 << 30  # address space of the process that reads a video

    def exceeded(self, name: str, amount: int) -> str:
        """Return an error message: the limit, the value found, and how to raise the limit."""
        return f"{amount:,} exceeds the limit {name}={getattr(self, name):,} (raise it with CHAI_LIMITS={name}=N)"


@lru_cache(maxsize=1)
def limits() -> Limits:
    """Return the limits in force."""
    changes: dict[str, int] = {}
    for item in filter(None, env().limits.split(",")):
        name, _, value = item.partition("=")
        if name.strip() not in Limits._fields or not value.strip().isdecimal() or len(value) > 20:
            raise UsageError(
                f"CHAI_LIMITS: cannot follow {item[:60]!r}",
                hint="name=number, names: " + ", ".join(sorted(Limits._fields)),
            )
        changes[name.strip()] = int(value)
    return Limits(**changes)
