"""Crafted packets of the verb ``inject``: their bytes, with the numbers of a running scenario.

Headers are filled from the tables of :mod:`rdmawire.wire`, so that any bit pattern can be sent.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EINVAL
from random import Random
from typing import Any, Final, NamedTuple

from rdmawire.decode import Protocols, opcodes_of
from rdmawire.errors import VerbsError, WireError
from rdmawire.fabric.field import named
from rdmawire.ib.encapsulation import headers_to
from rdmawire.traffic.scenario.model.packet import EXPECTED, HEADERS_BY_NAME, Payload, Psn
from rdmawire.traffic.scenario.runner.endpoint import QueuePairRuntime
from rdmawire.traffic.scenario.runner.host_runtime import bytes_of
from rdmawire.wire import serial
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.field_registry import Value
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, DETH, IETH, RETH, XRCETH, AtomicETH
from rdmawire.wire.inet import IPv4
from rdmawire.wire.layout import Piece
from rdmawire.wire.packet import Layout, OpcodeTable, Packet
from rdmawire.wire.roce import Frame

_BITS_64: Final = (1 << 64) - 1
_BITS_32: Final = (1 << 32) - 1


class RemoteSpan(NamedTuple):
    """Memory of the peer as a header names it: address, key, and length in bytes."""

    va: int = 0
    rkey: int = 0
    length: int = 0

    def moved(self, va: int, rkey: int) -> "RemoteSpan":
        """Return the span with other numbers: ``va`` and ``rkey`` are added."""
        return self._replace(va=(self.va + va) & _BITS_64, rkey=(self.rkey + rkey) & _BITS_32)


class PacketCrafter:
    """Builds the packets that one end sends to its peer.

    ``values`` are the verb's, ``remote`` is the memory that the packet names.
    """

    def __init__(
        self,
        endpoint: QueuePairRuntime,
        values: Mapping[str, Any],
        remote: RemoteSpan,
        protocols: Protocols,
    ) -> None:
        self.endpoint = endpoint
        self.remote = remote.moved(values.get("va_offset", 0), values.get("rkey_offset", 0))
        self.queue: str | None = values.get("queue")
        self._values = values
        self._fields: Mapping[str, Value] = values.get("fields", {})
        self._opcodes: OpcodeTable = opcodes_of(protocols)

    def frame(self, random: Random) -> bytes:
        """Return the frame; ``random`` gives random payload.

        Raises ``VerbsError`` EINVAL for a packet that no frame can hold.
        """
        try:
            return self._sealed(Frame(self._network(), self._packet(random)))
        except WireError as error:
            raise VerbsError(f"crafted packet: {error}", EINVAL) from error

    def _network(self) -> tuple[Header, ...]:
        """Return the headers before the BTH, those of the connection's path."""
        endpoint = self.endpoint
        path, peer = endpoint.path, endpoint.peer.qp.qp_num
        port = endpoint.qp.source_port(path, peer)
        return headers_to(path, endpoint.machine.mac, port)

    def _packet(self, random: Random) -> Packet:
        data: bytes | None = self._values.get("hex")
        if data is not None:
            return Packet(BTH.parse(data), (), data[BTH.SIZE :])
        payload = self._payload(random)
        pad: int = self._values.get("pad", -len(payload) % 4)
        bth = BTH(
            opcode=self._values["opcode"],
            psn=self._psn(),
            pkey=self.endpoint.qp.pkey,
            destqp=self.endpoint.peer.qp.qp_num,
            padcnt=pad & 3,
        )
        extended = tuple(_FILLED.get(table, _default)(self, table) for table in self._tables())
        return Packet(bth, extended, payload, bytes(pad))

    def _payload(self, random: Random) -> bytes:
        given: Payload | None = self._values.get("payload")
        return b"" if given is None else b"".join(bytes_of(given.content, given.size, random))

    def _tables(self) -> tuple[type[Header], ...]:
        names: tuple[str, ...] | None = self._values.get("headers")
        if names is not None:
            return tuple(HEADERS_BY_NAME[name] for name in names)
        layout = self._layout
        return () if layout is None else layout.headers

    @property
    def _layout(self) -> Layout | None:
        return self._opcodes.get(self._values["opcode"])

    def _psn(self) -> int:
        psn: Psn = self._values.get("psn", EXPECTED)
        return serial.add(self._expected_psn(), psn.number) if psn.relative else psn.number

    def _expected_psn(self) -> int:
        """Return the PSN that the peer's responder expects, or of a response, its requester."""
        peer, layout = self.endpoint.peer.qp, self._layout
        if layout is not None and layout.shape is not None and layout.shape.response:
            return peer.sq.unacked_psn
        return peer.inbound.epsn

    # Fields and checksums.

    def _sealed(self, base: Frame) -> bytes:
        """Return the frame with its fields changed, and with lengths and checksums.

        Fields before the BTH change after the lengths are computed.
        """
        packet = base.packet
        extended = tuple(map(self._changed, packet.extended))
        packet = packet._replace(bth=self._changed(packet.bth), extended=extended)
        sealed = base._replace(packet=packet).seal()
        outer = tuple(map(self._changed, sealed.headers))
        if outer != sealed.headers:
            sealed = sealed._replace(headers=self._with_ip_checksum(outer))
            with suppress(WireError):  # headers that no ICRC can begin with keep the old one
                sealed = sealed._replace(icrc=sealed.expected_icrc())
        icrc = self._values.get("icrc", "good")
        if icrc == "stale":
            sealed = sealed._replace(icrc=base.seal().icrc)
        frame = sealed.build()
        return frame[:-1] + bytes((frame[-1] ^ 1,)) if icrc == "bad" else frame

    def _changed(self, piece: Any) -> Any:
        """Return a header with the values of its fields."""
        for name, value in self._fields.items():
            for field in named(name):
                if field.table is type(piece):
                    piece = field.replaced(piece, value)
                    break
        return piece

    def _with_ip_checksum(self, headers: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Recompute the checksum of a changed IPv4 header, unless a field sets the checksum."""
        if any(field.name == "ip.checksum" for name in self._fields for field in named(name)):
            return headers
        return tuple(
            piece.replace(checksum=ipv4_header_checksum(piece.build()))
            if isinstance(piece, IPv4)
            else piece
            for piece in headers
        )


# Headers.


def _default(_: PacketCrafter, table: type[Header]) -> Header:
    return table()


def _reth(packet: PacketCrafter, _: type[Header]) -> Header:
    return RETH(packet.remote.va, packet.remote.rkey, packet.remote.length)


def _deth(packet: PacketCrafter, _: type[Header]) -> Header:
    return DETH(qkey=packet.endpoint.peer.qp.qkey, srcqp=packet.endpoint.qp.qp_num)


def _xrceth(packet: PacketCrafter, _: type[Header]) -> Header:
    peer = packet.endpoint.peer
    srq = peer.srq if packet.queue is None else peer.machine.srqs[packet.queue]
    return XRCETH(xrcsrq=0 if srq is None else srq.number)


_FILLED: Final[dict[type[Header], Callable[[PacketCrafter, type[Header]], Header]]] = {
    RETH: _reth,
    AtomicETH: lambda packet, _: AtomicETH(packet.remote.va, packet.remote.rkey),
    IETH: lambda packet, _: IETH(packet.remote.rkey),
    DETH: _deth,
    XRCETH: _xrceth,
}
"""How headers are filled; others have their default values."""
