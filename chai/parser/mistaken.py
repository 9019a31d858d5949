"""Recognise files that are passed by mistake as a network or its weights, by their first bytes or name."""

from __future__ import annotations

from pathlib import Path

from ..errors import ParseError

HEAD = 512  # bytes to inspect
_CONVERT = "chai reads ONNX files and Caffe's networks: export it as ONNX first"
_ALONE = "an ONNX file is a network with its weights: give it alone, in place of a prototxt"
_UNPACK = "unpack it first"
WHOLE_FILE = "is this the whole file? compare its size or checksum with the source"  # a hint
_STARTS = (
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself", "fetch it with git lfs pull"),
    (b"\x89HDF", "an HDF5 file", "Keras's networks have to be converted; Caffe's are saved as a binary .caffemodel"),
    (b"\x93NUMPY", "a NumPy array", "arrays are inputs (-i) or means (--mean-file)"),
    (b"\x89PNG", "a picture", "pictures are inputs: -i"),
    (b"\xff\xd8\xff", "a picture", "pictures are inputs: -i"),
    (b"\x89chai", "a compiled network", "its name has to end in .chai"),
    (b"\x1f\x8b", "a gzip file", _UNPACK),
    (b"BZh", "a bzip2 file", _UNPACK),
    (b"\xfd7zXZ", "an xz file", _UNPACK),
    (b"7z\xbc\xaf", "a 7-Zip archive", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", _UNPACK),
)
ONNX = "an ONNX model"
_NAMES = {  # but for .pt, with which py-faster-rcnn names prototxts: PyTorch's have bytes of their own
    ".onnx": ONNX,
    ".pb": "a TensorFlow graph",
    ".pth": "a PyTorch file",
    ".tflite": "a TensorFlow Lite model",
    ".safetensors": "a safetensors file",
    ".keras": "a Keras model",
    ".h5": "an HDF5 file",
    ".pkl": "a pickle",
    ".weights": "a Darknet file",
    ".mlmodel": "a Core ML model",
}


def refuse(head: bytes, path: str | Path, expected: str) -> None:
    """Raise ParseError for a file that is known as something else than ``expected``. ``head`` has its first bytes."""
    if kind := recognise(head, path):
        raise ParseError(f"this is {kind[0]}, expected {expected}", path=str(path), hint=kind[1])


def recognise(head: bytes, path: str | Path) -> tuple[str, str] | None:
    """Return the kind of a file and a hint what to do; None if unknown. ``head`` has its first bytes."""
    for start, what, hint in _STARTS:
        if head.startswith(start):
            return what, hint
    if head.startswith(b"PK\x03\x04"):
        return ("a PyTorch file", _CONVERT) if b".pkl" in head[:HEAD] else ("a zip archive", _UNPACK)
    if head[257:262] == b"ustar":
        return "a tar archive", _UNPACK
    if head[4:8] == b"TFL3":
        return "a TensorFlow Lite model", _CONVERT
    if head[8:10] == b'{"' and 2 <= int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file", _CONVERT
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a pickle, perhaps of PyTorch", _CONVERT
    if starts_like_onnx(head):
        return ONNX, _ALONE
    if head[:1] == b"\x0a" and any(op in head for op in (b"\x12\x0bPlaceholder", b"\x12\x05Const")):
        return "a TensorFlow graph", _CONVERT
    named = _NAMES.get(Path(path).suffix.lower())
    return (named, _ALONE if named == ONNX else _CONVERT) if named else None


def starts_like_onnx(head: bytes) -> bool:
    """Return whether ``head`` starts like a ModelProto: its ir_version, then producer, domain, graph or opset."""
    return len(head) > 2 and head[0] == 0x08 and 1 <= head[1] < 64 and head[2] in (0x12, 0x1A, 0x22, 0x3A, 0x42)
