"""The accelerator of a manifest, complete."""

from chai.overlay import Overlay

from .array.engine import ArrayEngine
from .top import Accelerator
from .window.engine import WindowEngine


def accelerator(overlay: Overlay) -> Accelerator:
    """Return the accelerator of a manifest, with both engines."""
    return Accelerator(overlay, ArrayEngine(overlay), WindowEngine(overlay))
