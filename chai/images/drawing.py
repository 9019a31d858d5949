"""Pictures of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import combining, normalize

from ..blob import Array
from ..util.files import complete
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from PIL.Image import Image

    from .preprocess import PictureWindow

Colour = tuple[int, int, int]  # red, green, blue, 0..255
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}  # supported for writing

LOW, HIGH = (0, 32, 77), (255, 234, 70)  # ends of a colour-blind safe scale from dark blue to yellow

_NEAREST = 0  # PIL.Image.NEAREST, which moved to Resampling in Pillow 9.1
_CAPTION, _GAP = 40, 12
_RIGHT, _WRONG = "#0072B2", "#D55E00"  # Okabe-Ito: colour-blind safe; the caption says it too


def contact_sheet(
    path: Path,
    items: Sequence[tuple[Image, str, bool]],
    columns: int,
    title: str,
    cell: tuple[int, int] = (96, 96),
) -> None:
    """Write a PNG of images with captions: ``items`` are (image, caption, whether it is right), each resized to a ``cell``.

    The file appears complete or not at all.
    """
    from PIL import Image, ImageDraw

    rows = -(-len(items) // columns)
    width, height = cell
    size = (_GAP + columns * (width + _GAP), 2 * _GAP + 16 + rows * (height + _CAPTION + _GAP))
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    font = _font(13)  # in smaller ones a space is as narrow as the gap between letters
    draw.text((_GAP, _GAP), title, fill="black", font=font)
    for i, (image, caption, right) in enumerate(items):
        x = _GAP + i % columns * (width + _GAP)
        y = 2 * _GAP + 16 + i // columns * (height + _CAPTION + _GAP)
        sheet.paste(image.convert("RGB").resize(cell, _NEAREST), (x, y))
        colour = _RIGHT if right else _WRONG
        draw.rectangle((x - 2, y - 2, x + width + 1, y + height + 1), outline=colour, width=2)
        draw.multiline_text((x, y + height + 5), caption, fill=colour, font=font, spacing=2)
    save(sheet, path, "PNG")


def save(image: Image, path: Path, format: str) -> None:
    """Write a picture; it appears complete or not at all."""
    with complete(path) as part:
        image.save(part, format, **({"quality": 95} if format == "JPEG" else {}))


def jpeg(image: Image, quality: int) -> bytes:
    """Return a picture as the bytes of a JPEG, of a quality from 1 to 95."""
    data = BytesIO()
    image.convert("RGB").save(data, "JPEG", quality=quality)
    return data.getvalue()


def class_colour(index: int) -> Colour:
    """Return PASCAL VOC's colour of a class: the bits of its index go to red, green and blue in turn.

    The lowest three are the highest bits of the channels, the next three the second highest; class 0 is black.
    """
    red, green, blue = (sum((index >> 3 * i + channel & 1) << 7 - i for i in range(8)) for channel in range(3))
    return red, green, blue


@dataclass(frozen=True)
class LabelledBox:
    """Left, top, right and bottom in pixels, which may be outside the picture, and a label drawn above."""

    corners: tuple[float, float, float, float]
    text: str
    colour: Colour


def with_boxes(image: Image, boxes: Sequence[LabelledBox]) -> Image:
    """Return a copy with a frame and a tag for each box; the first of overlapping frames is drawn on top.

    Frames are clipped to the picture; a box that is empty or entirely outside is left out.
    """
    from PIL import ImageDraw

    image = image.convert("RGB")
    draw, font = ImageDraw.Draw(image), _font(_letters(image))
    for box in reversed(boxes):
        frame = _pixels(box.corners, image.size)
        if frame is None:
            continue
        draw.rectangle(frame, outline=box.colour, width=max(2, min(image.size) // 150))
        text = _drawable(box.text)
        if not text:
            continue
        left, top = frame[:2]
        width, height = _extent(text, font)
        above = top - height - 4
        y = above if above >= 0 else top
        x = max(0, min(left, image.width - width - 5))
        draw.rectangle((x, y, x + width + 4, y + height + 3), fill=box.colour)
        draw.text((x + 2, y + 2), text, fill=_contrast(box.colour), font=font)
    return image


def with_classes(image: Image, classes: Array, window: PictureWindow) -> Image:
    """Return a copy blended with the colours of ``classes``, int (H, W), stretched over ``window`` (see ``_covered``)."""
    from PIL import Image as Images

    indices, places = np.unique(classes, return_inverse=True)
    palette = np.array([class_colour(int(i)) for i in indices], np.uint8)
    return _covered(image, Images.fromarray(palette[places.reshape(classes.shape)]), window)


def with_values(image: Image, values: Array, window: PictureWindow) -> Image:
    """Return a copy blended with the colours of ``values`` (H, W), from least (LOW) to largest (HIGH), over a window.

    Values that are not finite have the colour of the least.
    """
    from PIL import Image as Images

    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    shares = (np.where(np.isfinite(values), values, low).astype(np.float64) - low) / ((high - low) or 1.0)
    colours = np.array(LOW) + shares[..., None] * (np.array(HIGH) - np.array(LOW))
    return _covered(image, Images.fromarray(np.rint(colours).astype(np.uint8)), window)


def _covered(image: Image, colours: Image, window: PictureWindow) -> Image:
    """Return a copy blended 1:1 with ``colours``, stretched over the window; what lies beyond the picture is left out."""
    from PIL import Image as Images

    image = image.convert("RGB")
    frame = _pixels(window[:4], image.size)
    if frame is None:
        return image
    left, top, right, bottom = frame
    part = (left, top, right + 1, bottom + 1)
    across, down = colours.width / (window.right - window.left), colours.height / (window.bottom - window.top)
    shown = (  # of the map: all of it, unless the window reaches beyond the picture
        max(0.0, -window.left * across),
        max(0.0, -window.top * down),
        colours.width - max(0.0, (window.right - image.width) * across),
        colours.height - max(0.0, (window.bottom - image.height) * down),
    )
    cover = colours.resize((right + 1 - left, bottom + 1 - top), _NEAREST, box=shown)
    image.paste(Images.blend(image.crop(part), cover, 0.5), part)
    return image


def with_lines(image: Image, lines: Sequence[tuple[str, Colour | None]]) -> Image:
    """Return a taller copy with lines of text below the picture, each after a square of its colour if it has one."""
    from PIL import Image as Images, ImageDraw

    font = _font(_letters(image))
    texts = [(_drawable(text), colour) for text, colour in lines]
    height = 6 + max((_extent(text, font)[1] for text, _ in texts), default=0)
    longest = max((_extent(text, font)[0] for text, _ in texts), default=0)
    sheet = Images.new("RGB", (max(image.width, longest + height + 8), image.height + height * len(texts)), "white")
    sheet.paste(image.convert("RGB"), (0, 0))
    draw = ImageDraw.Draw(sheet)
    for i, (text, colour) in enumerate(texts):
        y = image.height + i * height
        if colour is not None:
            draw.rectangle((4, y + 3, height - 2, y + height - 4), fill=colour)
        draw.text((4 if colour is None else height + 2, y + 3), text, fill="black", font=font)
    return sheet


def _pixels(corners: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Return a box clipped to an image of ``size``: its outermost pixels (left, top, right, bottom), None if empty."""
    if not all(map(isfinite, corners)):
        return None
    left, top, right, bottom = corners
    x0, y0 = round(max(left, 0)), round(max(top, 0))
    x1, y1 = round(min(right, size[0])) - 1, round(min(bottom, size[1])) - 1
    return (x0, y0, x1, y1) if x0 <= x1 and y0 <= y1 else None


def _letters(image: Image) -> int:
    """Return the size of letters that can be read in an image, in pixels."""
    return max(11, min(image.size) // 40)


def _font(size: int) -> Any:
    """Return Pillow's built-in font, of this size if this version of Pillow can scale it."""
    from PIL import ImageFont

    try:
        return ImageFont.load_default(size=size)
    except (TypeError, ImportError):  # Pillow before 10.1, or without FreeType
        return ImageFont.load_default()


def _drawable(text: str) -> str:
    """Return one line of bounded length in ASCII, the only characters that all of Pillow's built-in fonts have."""
    bare = (c for c in normalize("NFKD", text[:80]) if not combining(c))  # NFKD makes accents separate characters
    return "".join(c if " " <= c <= "~" else "?" for c in bare)[:80]


def _extent(text: str, font: Any) -> tuple[int, int]:
    """Return width and line height in pixels."""
    width, height = font.getmask(text or " ").size
    return width, sum(font.getmetrics()) if hasattr(font, "getmetrics") else height


def _contrast(colour: Colour) -> Colour:
    """Return black or white, whichever has more contrast by the luma of ITU-R BT.601."""
    red, green, blue = colour
    return (0, 0, 0) if 299 * red + 587 * green + 114 * blue > 128_000 else (255, 255, 255)
