"""iWARP: start-up frames of MPA, and FPDUs with the DDP segment in them."""

from typing import Any

from construct import Bytes, Construct, FixedSized, If, Struct, this

from rdmawire.layers.construct.header import Completed, Pieces, struct
from rdmawire.wire import rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import FPDUCRC, FPDULength, MPAEnhanced, MPAReply, MPARequest, crc_of
from rdmawire.wire.tables import tables_of

Segment = Pieces(rdmap.layout, *tables_of("rdmap", "terminate"))
"""A DDP segment: its headers, those that a Terminate quotes, and payload as ``bytes``."""


def _closed(given: Any) -> dict[str, Any]:
    """Return the FPDU with omitted length, pad and CRC computed."""
    segment = Segment.build(given["segment"])
    head = struct(FPDULength).build(given.get("length", {"ulpdu_length": len(segment)}))
    pad = given.get("pad", bytes(-len(head + segment) % 4))
    crc = {"crc": crc_of(head + segment + pad)}
    return {"length": {"ulpdu_length": len(segment)}, "pad": pad, "crc": crc, **given}


_FPDU = Struct(
    "length" / struct(FPDULength),
    "segment" / FixedSized(this.length.ulpdu_length, Segment),
    "pad" / Bytes(lambda ctx: -(FPDULength.SIZE + ctx.length["ulpdu_length"]) % 4),
    "crc" / struct(FPDUCRC),
)
FPDU = "FPDU" / Completed(_FPDU, _closed)
"""An FPDU without Markers: ``length``, ``segment``, ``pad`` and ``crc``.

Omitted fields are computed. For streams with Markers use ``rdmawire.layers.scapy`` or
``rdmawire.dissect``, which remove the Markers.
"""


def _enhanced_size(header: Any) -> int:
    """Size in bytes of RFC 6581's header, which counts as private data."""
    return MPAEnhanced.SIZE if header.get("s") else 0


def _private_size(frame: Any) -> int:
    return int(frame["header"]["pd_length"]) - _enhanced_size(frame["header"])


def _announced(given: Any) -> dict[str, Any]:
    """Return the frame with an omitted length of the private data computed."""
    private = given.get("private_data", b"")
    header = given.get("header", {})
    size = len(private) + _enhanced_size(header)
    return {
        "enhanced": {},
        "private_data": private,
        **given,
        "header": {"s": False, "pd_length": size, **header},
    }


def _start_up(table: type[Header]) -> Construct:
    frame = Struct(
        "header" / struct(table),
        "enhanced" / If(lambda ctx: ctx.header["s"], struct(MPAEnhanced)),
        "private_data" / Bytes(_private_size),
    )
    return table.__name__ / Completed(frame, _announced)


StartUpRequest = _start_up(MPARequest)
StartUpReply = _start_up(MPAReply)
"""Start-up frames: ``header``, ``enhanced`` (RFC 6581, where S is set) and ``private_data``."""
