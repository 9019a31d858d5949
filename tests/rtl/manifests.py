"""Manifests of small accelerators: the default one with fewer multipliers and smaller memories."""

from __future__ import annotations

import json
from pathlib import Path

from chai import overlay as overlays
from chai.overlay import Overlay


def small(
    folder: Path,
    inputs: int = 8,
    outputs: int = 8,
    lanes: int = 3,
    pixels: int = 64,
    ring: int = 1024,
    weights: int = 256,
    board: str = "pynq-z2",
    wide: bool = False,
) -> Overlay:
    """An overlay whose manifest is written to a folder; ``pixels``, ``ring`` and ``weights`` are words of its memories.

    The overlay ``board`` has the processor, and so the memory ports. ``wide`` ones have 128 bits, and the codes of all
    outputs of a pixel leave the array together; two planes go side by side through the window engine.
    """
    manifest = json.loads(overlays.load().path.read_text())
    manifest |= {key: json.loads(overlays.load(board).path.read_text())[key] for key in ("family", "memory_port")}
    manifest["array"] |= {"inputs": inputs, "outputs": outputs, "lanes": lanes}
    manifest["dsp"]["array"] = inputs * outputs * lanes // manifest["macs_per_dsp"]
    sizes = {"input": (8 * inputs, ring), "weights": (8 * outputs, weights)}
    sizes["accumulators"] = manifest["wide_bits"] * outputs, pixels
    for name, (bits, depth) in sizes.items():
        copies = 1 if name == "weights" else lanes
        manifest["buffers"][name] |= {"word_bits": bits, "depth": depth, "copies": copies}
    if wide:
        manifest["ports"] = {"bytes": 16, "outputs": 2, "constants": 3 if inputs > 8 else 2, "window": 2}
        manifest["requant"]["lanes"] = manifest["dsp"]["requant"] = outputs
        manifest["window"] = {"read_bytes": 16, "write_bytes": 16}
        manifest["buffers"]["pool"]["word_bits"] = 16 * 16
    manifest["name"] = f"array-{inputs}x{outputs}x{lanes}"
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return overlays.load(path)
