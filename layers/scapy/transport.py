# SPDX-License-Identifier: GPL-2.0-only
"""The InfiniBand transport: a BTH with its headers, its payload and pad, and the ICRC behind."""

from collections.abc import Iterator
from contextlib import suppress

from rdmawire.errors import WireError
from rdmawire.layers.scapy.field import BehindField
from rdmawire.layers.scapy.layer import Plan, Step, TableLayer, define
from rdmawire.layers.scapy.routing import icrc, is_cut
from rdmawire.wire import ib, mad
from rdmawire.wire.layout import Placed, size
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.mad import SIZE as DATAGRAM
from rdmawire.wire.opcode import SHAPES, Service, is_vendor
from rdmawire.wire.packet import LAYOUTS


def planned(pieces: Iterator[Placed]) -> Plan:
    """A layout as a plan, up to where it cannot go on: from there on bytes are raw."""
    steps: list[Step] = []
    with suppress(WireError):
        for _, piece in pieces:
            table = None if isinstance(piece, bytes) else type(piece)
            steps.append(Step(table, size(piece)))
    return tuple(steps)


class TransportLayer(TableLayer):
    """A BTH: ``padcnt``, ``pad`` and ``icrc`` are worked out where they are left out."""

    def planned(self, data: bytes) -> Plan:
        """The headers of the opcode, and those of a management datagram behind them."""
        found = LAYOUTS.get(data[0]) if data else None
        if found is None:
            return ()
        start = ib.BTH.SIZE + found.size
        steps = tuple(Step(table, table.SIZE) for table in found.headers)
        return steps + _datagram(data, start)

    def compute_icrc(self, p: bytes) -> bytes:
        """The ICRC of ``p``, the bytes from the BTH to the ICRC's end, in the wire's order.

        This and :meth:`pack_icrc` are for scripts that call them on ``scapy.contrib.roce``.
        """
        return (icrc(self, p[: -ib.ICRC.SIZE]) or 0).to_bytes(ib.ICRC.SIZE, "big")

    @staticmethod
    def pack_icrc(icrc: int) -> bytes:
        """The bytes of a CRC-32 in the order in which an ICRC is sent, the lowest first."""
        return (icrc & 0xFFFFFFFF).to_bytes(ib.ICRC.SIZE, "little")

    def post_dissect(self, s: bytes) -> bytes:
        """Take ICRC and pad off the end."""
        self.raw_packet_cache = None  # what is behind the payload is not in it
        self.fields |= {"pad": b"", "icrc": b""}
        if len(s) < ib.ICRC.SIZE or is_cut(self, ib.BTH.SIZE + len(s)):
            return s
        rest, self.fields["icrc"] = s[: -ib.ICRC.SIZE], int.from_bytes(s[-ib.ICRC.SIZE :], "big")
        end = len(rest) - min(self.padcnt, len(rest))
        self.fields["pad"] = rest[end:]
        return rest[:end]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Put pad and ICRC behind the payload."""
        pad = self.behind("pad", lambda: bytes(0 if is_vendor(pkt[0]) else -len(pay) % 4))
        if self.padcnt is None:
            pkt = ib.BTH.parse(pkt).replace(padcnt=len(pad) & 3).build()
        data = pkt + pay + pad
        return data + self.behind("icrc", lambda: icrc(self, data) or 0)

    def icrc_expected(self) -> int | None:
        """What the ICRC must be; ``None`` without IP header, GRH or LRH below."""
        data = self.copy()
        data.fields["icrc"] = b""
        return icrc(self, data.do_build())

    def icrc_good(self) -> bool:
        """Whether the ICRC is what it must be."""
        return bool(self.icrc == self.icrc_expected())


def _datagram(data: bytes, start: int) -> Plan:
    """What a management datagram holds, if the packet is for a queue pair that takes them."""
    bth = ib.BTH.parse(data) if len(data) >= ib.BTH.SIZE else None
    shape = SHAPES.get(data[0])
    if bth is None or shape is None or shape.service is not Service.UD:
        return ()
    if bth.destqp not in MANAGEMENT_QPS:
        return ()
    return planned(mad.layout(data[start : start + DATAGRAM]))


class DatagramLayer(TableLayer):
    """The common header of a management datagram; ``fill`` makes it 256 bytes long."""

    def planned(self, data: bytes) -> Plan:
        """What class and attribute put behind the header."""
        return planned(mad.layout(data))[1:]

    def post_dissect(self, s: bytes) -> bytes:
        """Take a datagram for as long as it is: it may be cut short."""
        self.fields["fill"] = b""
        return s

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill up what is shorter than a datagram."""
        data = pkt + pay
        return data + self.behind("fill", lambda: bytes(max(DATAGRAM - len(data), 0)))


BTH = define(
    ib.BTH,
    TransportLayer,
    more=(BehindField("BTH", "pad"), BehindField("BTH", "icrc", ib.ICRC.SIZE)),
    computed=("padcnt",),
)
MAD = define(mad.MAD, DatagramLayer, more=(BehindField("MAD", "fill"),))
DirectedMAD = define(mad.DirectedMAD, DatagramLayer, more=(BehindField("DirectedMAD", "fill"),))
