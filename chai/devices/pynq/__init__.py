"""pynq: an overlay on a Zynq board, through the pynq library.

The one folder that imports pynq, and only when a network is loaded for the board. For each segment the host writes the
blobs it is given into DDR, four registers, and reads the blobs it wants: everything else is in the chain of descriptors
that the accelerator fetches.
"""

from .program import device

__all__ = ["device"]
