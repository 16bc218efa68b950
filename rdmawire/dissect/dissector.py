"""Frames to dissections, one after the other, remembering what connects them."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from rdmawire.capture import LinkType, Reader, Record
from rdmawire.decode import PROTOCOLS, By, Following, Protocols
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.walk import NodeWalk, Session, piece_node
from rdmawire.errors import CaptureError
from rdmawire.wire import sa
from rdmawire.wire.inet import ROCE_PORT, TCP, UDP
from rdmawire.wire.layout import Piece
from rdmawire.wire.mad import MAD
from rdmawire.wire.rmpp import RMPP
from rdmawire.wire.sa import SAHeader


class FrameWalk(NodeWalk):
    """A walk that also puts together what several frames carry: iWARP streams, RMPP transfers."""

    __slots__ = ()

    def enter_segment(self, tcp: TCP) -> Following:
        """Add a segment to its stream; the modules of iWARP are imported at the first one."""
        from rdmawire.dissect import iwarp

        return iwarp.add_segment(self, tcp)

    def enter_management(self, start: int, pieces: Sequence[Piece]) -> None:
        """After the last segment of an RMPP transfer, add the records that all of them bring."""
        headers = {type(piece): piece for piece in pieces}
        common, subnet = headers.get(MAD), headers.get(SAHeader)
        if not isinstance(common, MAD) or not isinstance(subnet, SAHeader) or _is_alone(headers):
            return
        key = self._peers(), common.mgmt_class, common.transaction_id
        data = self.session.rmpp.feed(key, self.data[start : self.end])
        if data is None:
            return
        for offset, piece in sa.records(
            common.attribute_id, subnet.attribute_offset, data, common.method
        ):
            self.nodes.append(piece_node(piece, offset, reassembled=True))

    def _peers(self) -> Hashable:
        """Both ends of the conversation, whichever sends."""
        if self.addresses is not None:
            return frozenset(self.hosts)
        route = self.nodes[0].header
        return frozenset((getattr(route, "slid", 0), getattr(route, "dlid", 0)))


def _is_alone(headers: Mapping[type, Piece]) -> bool:
    """Whether a segment is a complete transfer: then its records are in it."""
    rmpp = headers.get(RMPP)
    return isinstance(rmpp, RMPP) and bool(rmpp.first and rmpp.last)


_NAMELESS = "unknown"
"""What Wireshark calls an interface that a pcapng does not describe."""


class Dissector:
    """Dissects the frames of one capture, in order.

    ``roce_ports`` are the UDP destination ports that carry RoCEv2, ``protocols`` say what carries
    what. Dissecting never raises: what does not parse is the last node of its dissection.
    """

    def __init__(
        self, roce_ports: Iterable[int] = (ROCE_PORT,), *, protocols: Protocols = PROTOCOLS
    ) -> None:
        self._session = Session(roce_ports)
        self._protocols = protocols
        self._number = 0
        self._first_ns: int | None = None
        self._previous_ns = 0

    def dissect(
        self, data: bytes, *, link_type: int = 1, time_ns: int = 0, length: int | None = None
    ) -> Dissection:
        """Dissect one frame.

        ``data`` are the captured bytes, ``length`` counts those on the wire, ``time_ns`` is
        nanoseconds since the epoch, ``link_type`` is the capture's (tcpdump's registry).
        """
        self._number += 1
        found = Dissection(self._number, data, len(data) if length is None else length, time_ns)
        FrameWalk(found, self._session).run((By.LINK, link_type), self._protocols)
        if self._first_ns is None:
            self._first_ns = self._previous_ns = found.time_ns
        found.first_ns, found.previous_ns = self._first_ns, self._previous_ns
        self._previous_ns = found.time_ns
        return found

    def udp_stream(self, hosts: tuple[bytes, bytes], udp: UDP) -> int:
        """Count a datagram that is not dissected; return the number of its conversation.

        ``hosts`` are the source and destination addresses.
        """
        return self._session.udp_stream(hosts, udp)

    def remembers_udp_streams(self, count: int) -> bool:
        """Whether all conversations are remembered though datagrams of ``count`` more come."""
        return self._session.udp.has_room(count)

    def capture(self, reader: Reader) -> Iterator[Dissection]:
        """Dissect all records of a capture, with their interfaces and comments.

        :class:`~rdmawire.errors.CaptureError` for damage, after the last record before it; for
        link types that are not known, at once where all records have one, else at the end.
        """
        if reader.format == "pcap":
            self.check_link_types(reader.name, {reader.interfaces[0].link_type})
        link_types = set()
        for record in reader:
            link_types.add(record.link_type)
            yield self.record(record, reader)
        self.check_link_types(reader.name, link_types)

    def check_link_types(self, name: str, link_types: set[int]) -> None:
        """Raise :class:`CaptureError` naming the link types that no protocol begins with.

        ``name`` is that of the capture.
        """
        known = {number for selector, number in self._protocols if selector == By.LINK}
        if unknown := sorted(link_types - known):
            names = ", ".join(map(_link_name, sorted(known)))
            said = " and ".join(map(str, unknown))
            raise CaptureError(f"{name}: link type {said} is not known; known are {names}")

    def record(self, record: Record, reader: Reader) -> Dissection:
        """Dissect the next record of a capture, with its interface and comments."""
        frame = self.dissect(
            record.data,
            link_type=record.link_type,
            time_ns=record.time_ns,
            length=record.length,
        )
        if reader.format == "pcapng":
            frame.interface, frame.comments = record.interface, record.comments
            there = reader.interfaces[record.interface]
            frame.interface_description = there.description
            frame.interface_name = there.name or there.description or _NAMELESS
        frame.file = reader.name
        return frame


def _link_name(number: int) -> str:
    try:
        return f"{LinkType(number).name} ({number})"
    except ValueError:
        return str(number)
