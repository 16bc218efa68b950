"""One walk through a frame: its headers, what its checksums cover, and its length fields.

::

    from rdmawire.decode import PROTOCOLS, By, walk_frame

    layout = walk_frame(frame)
    tunnels = PROTOCOLS | {(By.UDP, 6081): geneve}  # one tunnel more
    layout = walk_frame(frame, protocols=tunnels)
"""

from rdmawire.decode.checksum import Addresses, Checksum
from rdmawire.decode.protocols import (
    LINK_TYPES,
    PROTOCOLS,
    TABLES,
    Outline,
    opcodes_of,
    outline,
    walk_frame,
    with_opcodes,
)
from rdmawire.decode.walk import (
    ROCE_PORTS,
    By,
    Following,
    FrameLayout,
    Hosts,
    LengthField,
    Located,
    Protocols,
    Selected,
    Step,
    Walk,
    host,
)

__all__ = [
    "LINK_TYPES",
    "PROTOCOLS",
    "ROCE_PORTS",
    "TABLES",
    "Addresses",
    "By",
    "Checksum",
    "Following",
    "FrameLayout",
    "Hosts",
    "LengthField",
    "Located",
    "Outline",
    "Protocols",
    "Selected",
    "Step",
    "Walk",
    "host",
    "opcodes_of",
    "outline",
    "walk_frame",
    "with_opcodes",
]
