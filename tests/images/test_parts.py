"""What Pillow is given of a picture's file: what its pixels need, as often as the limits allow."""

from __future__ import annotations

import re
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps, PngImagePlugin

from chai import ParseError
from chai.images import files
from chai.images.parts import essential
from chai.limits import limits
from tests.conftest import report
from tests.parser.test_memory import MB, growth

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (11, 13, 3), np.uint8))
IDAT = b"\0\0\0\x63IDAT"
TOO_MANY = limits().image_parts + 1


def encoded(kind: str, picture: Image.Image = PICTURE, **options: object) -> bytes:
    stream = BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_with(*chunks: bytes) -> bytes:
    """A PNG with these chunks after its header."""
    data = encoded("PNG")
    return data[:33] + b"".join(chunks) + data[33:]


def jpeg_with(*segments: bytes) -> bytes:
    """A JPEG with these segments at its start."""
    data = encoded("JPEG")
    return data[:2] + b"".join(segments) + data[2:]


def segment(code: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, code, len(data) + 2) + data


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("orientation", range(10))
def test_a_picture_is_turned_as_by_pillow(tmp_path: Path, orientation: int, kind: str, order: str) -> None:
    exif = Image.Exif()
    exif.endian = order
    exif[0x0100], exif[0x0112], exif[0x0131] = 13, orientation, "a program"
    data = encoded(kind, exif=exif)
    (tmp_path / "x.png").write_bytes(data)
    wanted = ImageOps.exif_transpose(Image.open(BytesIO(data)))
    assert np.array_equal(np.asarray(files.read(tmp_path / "x.png")), np.asarray(wanted))


def test_the_orientation_of_xmp(tmp_path: Path) -> None:
    xmp = b'<rdf:Description tiff:Orientation="6"/>'
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", xmp.decode())
    for data in (
        encoded("PNG", pnginfo=info),
        jpeg_with(segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp)),
    ):
        (tmp_path / "x").write_bytes(data)
        wanted = np.rot90(np.asarray(Image.open(BytesIO(data))), -1)  # older versions of Pillow do not look there
        assert np.array_equal(np.asarray(files.read(tmp_path / "x")), wanted)


@pytest.mark.parametrize(
    "tiff",
    [
        b"",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff",
        b"II*\0\x08\0\0\0\xff\xff",
        b"MM\0*\0\0\0\x08\0\1\x01\x12",
        b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0",
    ],
)
def test_damaged_exif_turns_nothing(tiff: bytes) -> None:
    assert essential(jpeg_with(segment(0xE1, b"Exif\0\0" + tiff)), "x")[1] == 1
    assert essential(png_with(chunk(b"eXIf", tiff)), "x")[1] == 1


def test_what_pixels_do_not_need_never_reaches_pillow() -> None:
    """Compressed profiles of a megabyte, Exif whose every tag names all of it, comments."""
    tags = b"".join(struct.pack("<HHII", tag, 1, 60_000, 0) for tag in range(2000))
    exif = b"II*\0\x08\0\0\0" + struct.pack("<H", 2000) + tags + bytes(40_000)
    profile = chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 20), 9))
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20), 9))
    assert essential(png_with(profile, text, chunk(b"eXIf", exif), chunk(b"acTL", bytes(8))), "x")[0] == png_with()
    app = [segment(0xE1, b"Exif\0\0" + exif[:60_000]), segment(0xFE, b"a comment"), segment(0xED, b"Photoshop 3.0\0")]
    assert essential(jpeg_with(*app, segment(0xE2, b"ICC_PROFILE\0")), "x")[0] == jpeg_with()


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_colours_are_pillows(tmp_path: Path, mode: str) -> None:
    """Segments that tell what the components are stay."""
    for progressive in (False, True):
        data = encoded("JPEG", PICTURE.convert(mode), progressive=progressive, icc_profile=b"no profile" * 9000)
        (tmp_path / "x.jpg").write_bytes(data)
        image = files.read(tmp_path / "x.jpg")
        assert image.mode == mode
        assert np.array_equal(np.asarray(image), np.asarray(Image.open(BytesIO(data))))


def scans(count: int, picture: Image.Image = PICTURE) -> bytes:
    """A progressive JPEG of so many scans: its last one is repeated, after a comment with the marker of the end."""
    data = encoded("JPEG", picture, progressive=True, subsampling=0)
    starts = [mark.start() for mark in re.finditer(rb"\xff\xda", data)]
    return data[:-2] + (segment(0xFE, b"\xff\xd9") + data[starts[-1] : -2]) * (count - len(starts)) + data[-2:]


def test_scans_of_a_jpeg_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(scans(64))
    files.read(tmp_path / "a.jpg")
    (tmp_path / "b.jpg").write_bytes(scans(65))
    with pytest.raises(ParseError, match=r"b\.jpg: 65 exceeds the limit image_scans=64"):
        files.read(tmp_path / "b.jpg")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png_with(*[chunk(b"tEXt", b"")] * TOO_MANY), "exceeds the limit image_parts="),
        (png_with(*[chunk(b"IDAT", b"")] * TOO_MANY), "exceeds the limit image_parts="),
        (jpeg_with(*[segment(0xE0, b"")] * TOO_MANY), "exceeds the limit image_parts="),
        (encoded("JPEG").replace(b"\xff\xc0", b"\xff\xc9"), "a JPEG of a rare kind"),
        (encoded("BMP").replace(b"\x18\0\0\0\0\0", b"\x08\0\1\0\0\0") + bytes(16 << 20), "a BMP of runs: "),
    ],
)
def test_parts_of_a_picture_are_bounded(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "x.png").write_bytes(data)
    with pytest.raises(ParseError, match=rf"x\.png: .*{reason}"):
        files.read(tmp_path / "x.png")


def sized(kind: str, width: int, height: int) -> bytes:
    """The start of a picture of this size, without one of its pixels."""
    if kind == "PNG":
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + IDAT
    if kind == "JPEG":
        data = encoded("JPEG")
        frame, scan = data.index(b"\xff\xc0") + 5, data.index(b"\xff\xda")
        return data[:frame] + struct.pack(">HH", height, width) + data[frame + 4 : scan + 14]
    if kind == "BMP":
        return encoded("BMP")[:18] + struct.pack("<ii", width, height) + encoded("BMP")[26:54]
    return b"%s %d %d " % (kind.encode(), width, height) + (b"" if kind in ("P1", "P4") else b"255\n")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "P1", "P2", "P3", "P4", "P5", "P6"])
def test_the_size_in_a_header_is_refused_before_pixels_are_read(tmp_path: Path, kind: str) -> None:
    for width, height in ((8192, 8193), (13_007, 13_003)):
        (tmp_path / "x").write_bytes(sized(kind, width, height))
        with pytest.raises(ParseError, match=rf"{width}x{height} pixels: .* exceeds the limit image_pixels=67,108,864"):
            files.read(tmp_path / "x")


READ = """
import numpy
from PIL import BmpImagePlugin, Image, JpegImagePlugin, PngImagePlugin
from chai import Preprocess
from chai.images.files import prepared

how = Preprocess(resize=(51, 53))
prepared([Image.new("RGB", (9, 9))], how, (1, 3, 41, 43))
before = peak()
said = prepared(sys.argv[1:], how, (1, 3, 41, 43)).shape
"""


@pytest.mark.parametrize("kind", ["scans", "turned", "16 bits", "png"])
def test_a_large_picture_costs_16_bytes_a_pixel(tmp_path: Path, kind: str) -> None:
    """Until it is a network's input; as SECURITY.md says."""
    width, height = 4096, 4095
    picture = Image.new("CMYK" if kind == "scans" else "RGB", (width, height), 77)
    exif = Image.Exif()
    exif[0x0112] = 6
    if kind == "16 bits":
        header = struct.pack(">IIBBBBB", width, height, 16, 6, 0, 0, 0)
        packer = zlib.compressobj(1)
        rows = b"".join(packer.compress(bytes(1 + 8 * width)) for _ in range(height)) + packer.flush()
        data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    else:
        data = {
            "scans": lambda: scans(20, picture),
            "turned": lambda: encoded("JPEG", picture, exif=exif),
            "png": lambda: encoded("PNG", picture, compress_level=1),
        }[kind]()
    (tmp_path / "x").write_bytes(data)
    grown, shape = growth(READ, tmp_path / "x")
    assert shape == "(1, 3, 41, 43)"
    report(f"a picture ({kind}): {grown / width / height:.1f} bytes a pixel")
    assert 4 * width * height < grown < 16 * width * height + 2 * len(data) + 8 * MB
