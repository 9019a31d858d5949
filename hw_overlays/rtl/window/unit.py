"""What the units that make sums of a plane's words have in common."""

from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import descriptor


def lanes_of(overlay: Overlay) -> int:
    """Return the channels of the planes that go side by side."""
    return overlay.layout.channels_per_word * overlay.window.planes


def unit_ports(overlay: Overlay) -> dict[str, object]:
    """Return the members of a unit's signature.

    ``task``     the descriptor, which stays
    ``ready``    1 if ``start``, for one cycle, may begin a plane
    ``first``    words of the input, of all planes that go side by side; all words of the plane are taken
    ``room``     1 if there is room for one more result; ``claim`` takes it, some cycles before ``valid`` gives the result
    ``starved``  1 if the unit waits for words, ``held`` if it waits for room, ``works`` if it goes on
    """
    return {
        "task": In(descriptor(overlay)),
        "ready": Out(1),
        "start": In(1),
        "first": In(stream.Signature(8 * lanes_of(overlay))),
        "room": In(1),
        "claim": Out(1),
        "valid": Out(1),
        "starved": Out(1),
        "held": Out(1),
        "works": Out(1),
    }
