"""pynq: an overlay on a Zynq board, through the pynq library.

Only this folder imports pynq, and only when a network is loaded for the board. For each segment the host writes the input
blobs to DDR, writes four registers, and reads the output blobs: everything else is in the chain of descriptors that the
accelerator fetches.
"""

from .program import device as device
