"""Importable name for the folder of overlays, as the entry point ``pynq.overlays`` needs.

pynq searches ``Overlay("pynq-z2.bit")`` in the ``__path__`` of every package registered there. The folder itself has no
Python files; in a checkout it is next to the package.
"""

from __future__ import annotations

from .util.paths import resource

__path__ = [str(resource("hw_overlays"))]
