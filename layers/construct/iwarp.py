"""iWARP: start-up frames of MPA, and FPDUs with the DDP segment in them."""

from typing import Any

from construct import Adapter, Bytes, Construct, Container, FixedSized, If, Struct, this

from rdmawire.layers.construct.header import struct
from rdmawire.layers.construct.layout import Pieces
from rdmawire.wire import rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import FPDUCRC, FPDULength, MPAEnhanced, MPAReply, MPARequest, crc_of
from rdmawire.wire.tables import tables_of

Segment = Pieces(rdmap.layout, *(t for m in ("ddp", "rdmap", "terminate") for t in tables_of(m)))
"""A DDP segment: its headers, those that a Terminate quotes, and payload as ``octets``."""


class _Closed(Adapter):
    """Works out length, pad and CRC of an FPDU where they are left out."""

    def _decode(self, obj: Container, context: Any, path: str) -> Container:  # noqa: ARG002
        return obj

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ARG002
        segment = Segment.build(obj["segment"])
        head = struct(FPDULength).build(obj.get("length", {"ulpdu_length": len(segment)}))
        pad = obj.get("pad", bytes(-len(head + segment) % 4))
        crc = {"crc": crc_of(head + segment + pad)}
        return {"length": {"ulpdu_length": len(segment)}, "pad": pad, "crc": crc, **obj}


FPDU = "FPDU" / _Closed(
    Struct(
        "length" / struct(FPDULength),
        "segment" / FixedSized(this.length.ulpdu_length, Segment),
        "pad" / Bytes(lambda ctx: -(FPDULength.SIZE + ctx.length["ulpdu_length"]) % 4),
        "crc" / struct(FPDUCRC),
    )
)
"""An FPDU without Markers: ``length``, ``segment``, ``pad`` and ``crc``.

What is left out is worked out. A stream with Markers is for ``rdmawire.layers.scapy`` or
``rdmawire.analysis``: they take the Markers out.
"""


def _private_size(frame: Any) -> int:
    """Octets of private data behind what RFC 6581 puts before it."""
    header = frame["header"]
    return int(header["pd_length"]) - (MPAEnhanced.SIZE if header.get("s") else 0)


class _Announced(Adapter):
    """Works out the length of the private data where it is left out."""

    def _decode(self, obj: Container, context: Any, path: str) -> Container:  # noqa: ARG002
        return obj

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ARG002
        private = obj.get("private_data", b"")
        header = obj.get("header", {})
        size = len(private) + (MPAEnhanced.SIZE if header.get("s") else 0)
        return {
            "enhanced": {},
            "private_data": private,
            **obj,
            "header": {"s": False, "pd_length": size, **header},
        }


def _start_up(table: type[Header]) -> Construct:
    return table.__name__ / _Announced(
        Struct(
            "header" / struct(table),
            "enhanced" / If(lambda ctx: ctx.header["s"], struct(MPAEnhanced)),
            "private_data" / Bytes(_private_size),
        )
    )


StartUpRequest = _start_up(MPARequest)
StartUpReply = _start_up(MPAReply)
"""Start-up frames: ``header``, ``enhanced`` (RFC 6581, where S is set) and ``private_data``."""
