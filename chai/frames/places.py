"""Names of videos: which are read and written, and by what; without the libraries that do it."""

from __future__ import annotations

import re
from os.path import splitext

CONTAINERS = {  # of each suffix, as libav names its reader
    ".mp4": "mov", ".m4v": "mov", ".mov": "mov", ".mkv": "matroska", ".webm": "matroska", ".avi": "avi", ".ts": "mpegts",
}  # fmt: skip
STREAMS = (".mjpeg", ".mjpg")
WRITTEN = (".mp4", *STREAMS)
CAMERA = re.compile(r"camera:(\d{1,3})|(/dev/video\d{1,3})")
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def is_video(place: str) -> bool:
    """Return whether ``-i PLACE`` names a video, without opening it: no picture, array or folder of them."""
    suffix = splitext(place)[1].lower()
    named = place == "-" or CAMERA.fullmatch(place) or ADDRESS.match(place)
    return bool(named) or suffix in CONTAINERS or suffix in STREAMS
