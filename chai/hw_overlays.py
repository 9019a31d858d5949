"""The folder of overlays under a name that can be imported: what the entry point ``pynq.overlays`` needs.

pynq looks for ``Overlay("pynq-z2.bit")`` in the ``__path__`` of every package registered there. The folder itself holds
no Python, and lies beside the package in a checkout.
"""

from __future__ import annotations

from .util.paths import resource

__path__ = [str(resource("hw_overlays"))]
