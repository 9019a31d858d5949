"""The process that reads videos with libav, and the messages between it and chai's own.

libav is C that parses bytes of strangers. So it runs apart: with bounded memory, without the right to open another file where
the source is a file, and with a timeout for each frame. It gets its job as a line of JSON and answers with frames: a HEADER, then
the pixels. A header of no pixels ends them; an answer in JSON comes after it.
"""

from __future__ import annotations

from struct import Struct

HEADER = Struct("<IId")  # width, height and seconds; (0, length of the answer, 0) at the end
EXTRA = "pip install 'chai-fpga[video]'"
