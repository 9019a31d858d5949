"""Manifests of overlays whose boards have less to test."""

from __future__ import annotations

import json
from pathlib import Path

from chai import overlay as overlays


def one_format(folder: Path, name: str) -> Path:
    """Write the manifest of an overlay with a single format, which has a fourth of the Tasks to test; return its path."""
    manifest = json.loads(overlays.load(name).path.read_text()) | {"bits": [8], "schemes": ["Xilinx"]}
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return path
