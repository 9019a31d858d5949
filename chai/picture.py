"""Pictures of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .files import complete

if TYPE_CHECKING:
    from PIL.Image import Image

_NEAREST = 0  # PIL.Image.NEAREST, which moved to Resampling in Pillow 9.1
_CELL, _CAPTION, _GAP = 96, 34, 12
_RIGHT, _WRONG = "#0072B2", "#D55E00"  # Okabe-Ito: told apart by every eye; the caption says it too


def contact_sheet(path: Path, items: Sequence[tuple[Image, str, bool]], columns: int, title: str) -> None:
    """A PNG of small images, each over its caption: ``items`` are (image, caption, whether it is right).

    The file appears complete or not at all.
    """
    from PIL import Image, ImageDraw, ImageFont

    rows = -(-len(items) // columns)
    size = (_GAP + columns * (_CELL + _GAP), 2 * _GAP + 16 + rows * (_CELL + _CAPTION + _GAP))
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default()
    draw.text((_GAP, _GAP), title, fill="black", font=font)
    for i, (image, caption, right) in enumerate(items):
        x = _GAP + i % columns * (_CELL + _GAP)
        y = 2 * _GAP + 16 + i // columns * (_CELL + _CAPTION + _GAP)
        sheet.paste(image.convert("RGB").resize((_CELL, _CELL), _NEAREST), (x, y))
        colour = _RIGHT if right else _WRONG
        draw.rectangle((x - 2, y - 2, x + _CELL + 1, y + _CELL + 1), outline=colour, width=2)
        draw.multiline_text((x, y + _CELL + 5), caption, fill=colour, font=font, spacing=2)
    with complete(path) as part:
        sheet.save(part, "PNG")
