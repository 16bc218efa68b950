"""Building pcapng: one section, whose interfaces are declared as they come."""

import struct
from dataclasses import replace
from typing import NamedTuple, NoReturn

from rdmawire.capture.block import BYTE_ORDER, LAYOUTS, LEAST_OF, MAX_INTERFACES, Block
from rdmawire.capture.interface import SECOND, Interface, description
from rdmawire.capture.misfit import check_data, check_number, check_time, most_octets
from rdmawire.capture.option import INTERFACE_NUMBERS, PACKET_NUMBERS, PADS, build_options
from rdmawire.capture.record import Record, RecordLayout
from rdmawire.errors import CaptureError


class Route(NamedTuple):
    """Where a record goes: the number of an interface of the file, and what it takes.

    ``plain``: its times are nanoseconds since 1970 as they are.
    """

    number: int
    most: int
    plain: bool
    interface: Interface


class PcapngBuilder:
    """Builds the octets of a pcapng file; those not taken away yet are ``pending``.

    A record goes to the interface that it names, if that has been added and is of its link
    type. For others an interface is added, one for each pair of interface and link type that
    the records name: like ``usual``, with their link type.
    """

    format = "pcapng"

    def __init__(self, order: str, usual: Interface) -> None:
        self.pending = bytearray()
        self.interfaces: list[Interface] = []
        self._layout = LAYOUTS[order]
        self._enhanced = self._layout.enhanced.pack
        self._word = self._layout.word.pack
        self._usual = usual
        self.record_layout = RecordLayout(f"{order}u4", 12, 1 << 32, 28)
        self._described = 0
        self._routes: dict[tuple[int, int], Route] = {}
        size = LEAST_OF[Block.SECTION]
        head = self._layout.section.pack(Block.SECTION, size, BYTE_ORDER, 1, 0, -1)
        self.pending += head + self._word(size)

    def add(self, interface: Interface) -> int:
        """Declare an interface; its number."""
        if not isinstance(interface, Interface):
            raise CaptureError(f"interfaces: an Interface is needed, found {interface!r}")
        number = len(self.interfaces)
        self._declare(interface, (number, interface.link_type))
        return number

    def _declare(self, interface: Interface, key: tuple[int, int]) -> Route:
        """Declare an interface, and have the records of this interface and link type go there."""
        block = self._description(interface)
        most = most_octets(interface.link_type, interface.snap_length)
        plain = interface.resolution == SECOND and interface.offset_seconds == 0
        described = self._described + len(block)
        check_number("interfaces: octets of their descriptions", described, MAX_INTERFACES)
        route = Route(len(self.interfaces), most, plain, interface)
        self._described = described
        self.pending += block
        self.interfaces.append(interface)
        self._routes[key] = route
        return route

    def _description(self, interface: Interface) -> bytes:
        """The block that declares the interface."""
        check_number("Interface.link_type", interface.link_type, 0xFFFF)
        check_number("Interface.snap_length", interface.snap_length, 0xFFFF_FFFF)
        layout = self._layout
        options = build_options(description(interface), layout.order, INTERFACE_NUMBERS)
        size = LEAST_OF[Block.INTERFACE] + len(options)
        fields = (Block.INTERFACE, size, interface.link_type, 0, interface.snap_length)
        return layout.interface.pack(*fields) + options + self._word(size)

    def record(self, record: Record) -> None:
        """Build a record; :class:`CaptureError` naming what does not fit."""
        data, time_ns, length, link_type, interface, options = record
        route = self._routes.get((interface, link_type)) or self._new_route(record)
        captured = len(data)
        if captured > route.most:
            self._refuse(record, route)
        list_ = build_options(options, self._layout.order, PACKET_NUMBERS) if options else b""
        size = 32 + (captured + 3 & ~3) + len(list_)
        try:
            ticks = time_ns if route.plain else route.interface.ticks(time_ns)
            head = self._enhanced(
                6, size, route.number, ticks >> 32, ticks & 0xFFFF_FFFF, captured, length
            )
            self.pending += b"".join((head, data, PADS[captured & 3], list_, self._word(size)))
        except (struct.error, TypeError):
            self._refuse(record, route)

    def _new_route(self, record: Record) -> Route:
        """An interface for records like this."""
        interface = replace(self._usual, link_type=record.link_type)
        return self._declare(interface, (record.interface, record.link_type))

    def _refuse(self, record: Record, route: Route) -> NoReturn:
        """Say what does not fit."""
        clock = route.interface
        check_data(record, route.most)
        check_time(record, clock.time_ns(0), clock.time_ns((1 << 64) - 1))
        check_number("Record.length", record.length, 0xFFFF_FFFF)
        raise AssertionError(f"{record!r} fits, yet was refused")
